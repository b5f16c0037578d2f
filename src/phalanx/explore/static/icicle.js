// The partition tree as an icicle: a row for each level, as wide as its share.

import { el, hideTip, showTip, svg } from "./dom.js";
import { count, leaves, nodeName, nodeValue, percent, shortMeasure, size, things } from "./format.js";

const ROW = 46;
const GAP = 1.5;
/** A label needs so many pixels. */
const READABLE = 34;
const CHARACTER = 7.3;

export const COLORS = [
  ["level", "level"],
  ["skew", "skew"],
  ["small", "small leaves"],
  ["files", "files per leaf"],
];

/** How much of a color a node gets, from 0 to 1; null for the colors of levels. */
function heat(node, color) {
  if (color === "skew") return node.skew === null ? 0 : Math.min(1, Math.log2(node.skew) / 6);
  if (color === "small") return node.small / node.leaves;
  if (color === "files") return Math.min(1, Math.log2(Math.max(1, node.files / node.leaves)) / 6);
  return null;
}

export function legend(color) {
  const texts = {
    skew: ["even", "the largest leaf is 64 times the median"],
    small: ["none below 32 MiB", "all leaves below 32 MiB"],
    files: ["one file per leaf", "64 files per leaf"],
  };
  if (!texts[color]) return null;
  const [low, high] = texts[color];
  const steps = [0, 0.2, 0.4, 0.6, 0.8, 1].map((n) => el("i", { class: `heat heat-${n * 5}` }));
  return el("div", { class: "legend" }, el("span", {}, low), ...steps, el("span", {}, high));
}

function describe(node, by, pruning) {
  const lines = [
    ["rows", count(node.rows)],
    ["size", size(node.bytes)],
    ["leaves", count(node.leaves)],
    ["files", count(node.files)],
  ];
  if (node.unknown) lines.splice(0, 2, ["sizes", `unknown for ${leaves(node.unknown)}`]);
  if (node.skew !== null) lines.push(["skew", `largest ${node.skew.toFixed(1)}× the median`]);
  if (node.small && !node.is_leaf) lines.push(["below 32 MiB", leaves(node.small)]);
  if (pruning) lines.push(["left to read", `${count(node.selected)} of ${leaves(node.leaves)}`]);
  return [
    el("strong", {}, nodeName(node)),
    el("dl", {}, lines.map(([name, text]) => [el("dt", {}, name), el("dd", {}, text)])),
    el("p", {}, node.is_leaf ? "Enter or click: its rows" : "Enter or click: look into it"),
  ];
}

/**
 * Draw branches. `options`: by, color, pruning (whether a filter is applied), open (called with a
 * node that was clicked), up (called to leave what is shown).
 */
export function icicle(branches, options) {
  const { by, color = "level", pruning = false, open, up } = options;
  const total = branches.reduce((sum, branch) => sum + branch[by], 0);
  const isEven = total === 0; // unknown sizes: every node is as wide as it has leaves
  const weigh = (node) => (isEven ? node.leaves : node[by]);
  const depth = (branch) => 1 + Math.max(0, ...branch.children.map(depth), branch.more ? 1 : 0);
  const rows = Math.max(1, ...branches.map(depth));
  const holder = el("div", { class: "icicle" });
  const cells = [];

  function draw() {
    const width = Math.max(320, holder.clientWidth);
    const image = svg("svg", {
      viewBox: `0 0 ${width} ${rows * ROW}`,
      width,
      height: rows * ROW,
      role: "tree",
      "aria-label": "partitions",
    });
    cells.length = 0;
    const whole = branches.reduce((sum, branch) => sum + weigh(branch), 0) || 1;
    let x = 0;
    branches.forEach((branch, n) => {
      const own = (weigh(branch) / whole) * width;
      place(image, branch, x, 0, own, n, null);
      x += own;
    });
    if (cells.length) cells[0].shape.setAttribute("tabindex", "0");
    holder.replaceChildren(image);
  }

  function place(image, node, x, row, width, number, parent) {
    const entry = { node, row, parent, children: [] };
    entry.shape = shape(image, node, x, row, width, number, entry);
    cells.push(entry);
    parent?.children.push(entry);
    const all = node.children.reduce((sum, child) => sum + weigh(child), 0);
    const rest = node.more ? (isEven ? node.more.leaves : node.more[by]) : 0;
    const below = all + rest || 1;
    let left = x;
    node.children.forEach((child, n) => {
      const own = (weigh(child) / below) * width;
      place(image, child, left, row + 1, own, n, entry);
      left += own;
    });
    if (node.more && x + width - left > 1) remainder(image, node, left, row + 1, x + width - left);
  }

  function shape(image, node, x, row, width, number, entry) {
    const level = heat(node, color);
    const dead = pruning && node.selected === 0;
    const isPart = pruning && !dead && node.selected < node.leaves;
    const tone = level === null ? `level-${row % 6} shade-${number % 2}` : `heat-${Math.round(level * 5)}`;
    const group = svg("g", {
      class: `node ${tone}${dead ? " dead" : ""}${isPart ? " part" : ""}`,
      role: "treeitem",
      tabindex: "-1",
      "aria-label": `${nodeName(node)}, ${leaves(node.leaves)}, ${things(node.rows, "row")}`,
      "data-selected": pruning ? node.selected : null,
      "data-leaves": node.leaves,
      transform: `translate(${x} ${row * ROW})`,
      onclick: () => open(node),
      onkeydown: (event) => move(event, entry),
      onfocus: (event) => {
        const box = event.currentTarget.getBoundingClientRect();
        showTip(box.left, box.bottom - 12, ...describe(node, by, pruning));
      },
      onblur: hideTip,
      onpointermove: (event) => showTip(event.clientX, event.clientY, ...describe(node, by, pruning)),
      onpointerleave: hideTip,
    });
    const inner = Math.max(0.75, width - GAP);
    group.append(svg("rect", { class: "box", width: inner, height: ROW - 2, rx: Math.min(4, inner / 3) }));
    if (isPart) {
      // A band at the bottom is as wide as the share that is left.
      const width = Math.max(1, inner * (node.selected / node.leaves));
      group.append(svg("rect", { class: "alive", y: ROW - 7, width, height: 5, rx: 1 }));
    }
    if (width > READABLE) {
      const room = Math.floor((width - 14) / CHARACTER);
      const cut = (text) => (text.length <= room ? text : `${text.slice(0, Math.max(1, room - 1))}…`);
      const full = nodeName(node);
      const label = full.length <= room ? full : nodeValue(node);
      group.append(svg("text", { class: "name", x: 7, y: 19 }, cut(label)));
      const amount = isEven ? leaves(node.leaves) : shortMeasure(node[by], by);
      if (amount.length <= room) group.append(svg("text", { class: "amount", x: 7, y: 35 }, amount));
    }
    image.append(group);
    return group;
  }

  function remainder(image, node, x, row, width) {
    const { more } = node;
    const text = `${count(more.nodes)} more with ${leaves(more.leaves)}, too small to draw`;
    const dead = pruning && more.selected === 0;
    const label = `+${count(more.nodes)}`;
    const group = svg(
      "g",
      {
        class: `rest${dead ? " dead" : ""}${pruning && !dead ? " left" : ""}`,
        transform: `translate(${x} ${row * ROW})`,
        onclick: () => open(node),
        onpointermove: (event) => showTip(event.clientX, event.clientY, el("strong", {}, text)),
        onpointerleave: hideTip,
      },
      svg("rect", { width: Math.max(0.75, width - GAP), height: ROW - 2, rx: 4 }),
      width > 12 + CHARACTER * label.length && svg("text", { class: "name", x: 6, y: 27 }, label),
    );
    image.append(group);
  }

  function move(event, entry) {
    const siblings = cells.filter((other) => other.row === entry.row);
    const at = siblings.indexOf(entry);
    const next = {
      ArrowLeft: () => siblings[at - 1],
      ArrowRight: () => siblings[at + 1],
      ArrowUp: () => entry.parent,
      ArrowDown: () => entry.children[0],
      Home: () => siblings[0],
      End: () => siblings.at(-1),
    }[event.key];
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      open(entry.node);
    } else if (event.key === "Backspace" && up) {
      event.preventDefault();
      up();
    } else if (next) {
      event.preventDefault();
      const target = next();
      if (!target) return;
      entry.shape.setAttribute("tabindex", "-1");
      target.shape.setAttribute("tabindex", "0");
      target.shape.focus();
    }
  }

  const observer = new ResizeObserver(() => {
    if (!holder.isConnected) return;
    if (Math.abs((holder.firstChild?.clientWidth ?? 0) - holder.clientWidth) > 1) draw();
  });
  observer.observe(holder);
  requestAnimationFrame(draw);
  return holder;
}

/** The path to what is shown; each part of it leads back. */
export function crumbs(path, open) {
  const parts = [el("button", { type: "button", onclick: () => open(null) }, "table")];
  path.forEach((node, n) => {
    const isLast = n === path.length - 1;
    parts.push(el("span", { class: "slash", "aria-hidden": "true" }, "/"));
    parts.push(
      isLast
        ? el("span", { class: "here", "aria-current": "location" }, nodeName(node))
        : el("button", { type: "button", onclick: () => open(node) }, nodeName(node)),
    );
  });
  return el("nav", { class: "crumbs", "aria-label": "Where you are" }, ...parts);
}

export function share(part, all) {
  return el(
    "span",
    { class: "share" },
    svg(
      "svg",
      { viewBox: "0 0 100 8", preserveAspectRatio: "none", "aria-hidden": "true" },
      svg("rect", { class: "track", width: 100, height: 8, rx: 2 }),
      svg("rect", { class: "bar", width: all ? Math.max(part ? 1 : 0, (100 * part) / all) : 0, height: 8, rx: 2 }),
    ),
    el("span", { class: "figure" }, percent(part, all)),
  );
}
