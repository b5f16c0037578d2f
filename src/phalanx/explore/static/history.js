// The history: what each transaction changed, and the difference between two versions.

import { ask } from "./api.js";
import { button, card, el, failure, grid, hideTip, showTip, svg } from "./dom.js";
import { count, leaves, short, size, time, things } from "./format.js";
import { state } from "./state.js";

/** How wide a transaction is: as wide as there is room, within bounds. */
const NARROWEST = 24;
const WIDEST = 96;
const HIGH = 120;
/** Room for the flag of a tag above, and for numbers below. */
const ABOVE = 22;
const BELOW = 24;
const compared = { before: null, after: null };
/** How many transactions the list shows at first. */
const LISTED = 100;

export async function history(view, goTo) {
  const answer = await ask("history");
  const list = el("div", {});
  const panel = el("div", { id: "diff" });
  const entries = answer.transactions;
  if (compared.after === null && entries.length > 1) {
    compared.after = entries.at(-1).version;
    compared.before = entries.at(-2).version;
  }

  function choose(side, version) {
    compared[side] = version;
    if (compared.before !== null && compared.after !== null && compared.before > compared.after) {
      [compared.before, compared.after] = [compared.after, compared.before];
    }
    draw();
    compare();
  }

  async function compare() {
    const { before, after } = compared;
    if (before === null || after === null) {
      panel.replaceChildren(el("p", { class: "quiet" }, "Choose two versions to compare."));
      return;
    }
    try {
      panel.replaceChildren(...difference(await ask("diff", { before, after })));
    } catch (error) {
      panel.replaceChildren(failure(error));
    }
  }

  function draw(all = false) {
    const newest = [...entries].reverse();
    const shown = all ? newest : newest.slice(0, LISTED);
    const rows = shown.map((entry) => [
      el("strong", {}, entry.version),
      [
        el("span", { class: `badge ${kind(entry.operation)}` }, entry.operation ?? "unknown"),
        entry.tags.map((tag) => el("span", { class: "tag" }, tag)),
      ],
      el("span", { class: "mono quiet" }, time(entry.committed_at)),
      delta(entry.rows_added, entry.rows_removed),
      count(entry.leaves),
      entry.can_open
        ? el(
            "span",
            { class: "pick" },
            pick("A", "before", entry.version),
            pick("B", "after", entry.version),
            button("open", () => goTo(entry.version), { class: "small", title: `Look at version ${entry.version}` }),
          )
        : el("span", { class: "quiet" }, "expired"),
    ]);
    const titles = ["version", "transaction", "committed (UTC)", "rows", "leaves", "compare"];
    list.replaceChildren(
      grid(titles, rows, [3, 4]),
      shown.length < newest.length
        ? button(`Show all ${count(newest.length)}`, () => draw(true), { class: "chip" })
        : "",
    );
  }

  function pick(label, side, version) {
    const isChosen = compared[side] === version;
    return button(label, () => choose(side, version), {
      class: `small${isChosen ? " chosen" : ""}`,
      "aria-pressed": String(isChosen),
      title: side === "before" ? `Compare from version ${version}` : `Compare to version ${version}`,
      "data-side": side,
      "data-version": version,
    });
  }

  draw();
  view.replaceChildren(
    card(
      "Timeline",
      timeline(entries, (version) => choose("after", version)),
      el("p", { class: "quiet" }, `${things(answer.total, "transaction")}; rows added above the line, removed below.`),
    ),
    el("div", { class: "columns wide-left" }, card("Transactions", list), card("Difference", panel)),
  );
  const strip = view.querySelector(".timeline");
  strip.scrollLeft = strip.scrollWidth;
  await compare();
}

export function kind(operation) {
  if (["append", "overwrite", "create"].includes(operation)) return "adds";
  if (["delete"].includes(operation)) return "removes";
  if (["update", "merge", "transaction"].includes(operation)) return "changes";
  if (/column|type|partitioning|default|nullable|replace/.test(operation ?? "")) return "shapes";
  return "keeps";
}

function delta(added, removed) {
  if (!added && !removed) return el("span", { class: "quiet" }, "–");
  return el(
    "span",
    {},
    added ? el("span", { class: "plus" }, `+${count(added)}`) : "",
    added && removed ? " " : "",
    removed ? el("span", { class: "minus" }, `−${count(removed)}`) : "",
  );
}

function timeline(entries, choose) {
  // The square root keeps small transactions visible beside large ones.
  const root = (rows) => Math.sqrt(rows);
  const most = (side) => Math.max(1, ...entries.map((entry) => root(entry[side])));
  const unit = HIGH / (most("rows_added") + most("rows_removed"));
  const scale = (rows) => (rows ? Math.max(5, root(rows) * unit) : 0);
  const line = ABOVE + most("rows_added") * unit;
  const height = ABOVE + HIGH + 8 + BELOW;
  const step = Math.max(NARROWEST, Math.min(WIDEST, (window.innerWidth - 120) / entries.length));
  const thick = Math.min(28, step - 10);
  const width = Math.max(1, entries.length) * step;
  const image = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "rows added and removed by each transaction" });
  image.append(svg("line", { class: "axis", x1: 0, x2: width, y1: line, y2: line }));
  entries.forEach((entry, n) => {
    const x = n * step + step / 2;
    const up = scale(entry.rows_added);
    const down = scale(entry.rows_removed);
    const card = [
      el("strong", {}, `Version ${entry.version}: ${entry.operation ?? "unknown"}`),
      el("p", {}, `${time(entry.committed_at)} UTC`),
      el("p", {}, `+${count(entry.rows_added)} −${count(entry.rows_removed)} rows in ${leaves(entry.leaves)}`),
      entry.tags.length ? el("p", {}, `tagged ${entry.tags.join(", ")}`) : "",
    ];
    image.append(
      svg(
        "g",
        {
          class: `moment ${kind(entry.operation)}`,
          onclick: () => entry.can_open && choose(entry.version),
          onpointermove: (event) => showTip(event.clientX, event.clientY, ...card.map((part) => part.cloneNode?.(true) ?? part)),
          onpointerleave: hideTip,
        },
        svg("rect", { class: "hit", x: x - step / 2, y: 0, width: step, height }),
        svg("rect", { class: "up", x: x - thick / 2, y: line - up, width: thick, height: up, rx: 3 }),
        svg("rect", { class: "down", x: x - thick / 2, y: line, width: thick, height: down, rx: 3 }),
        svg("circle", { cx: x, cy: line, r: 4.5 }),
        entry.tags.length ? svg("path", { class: "flag", d: `M${x} ${line - up - 4} v-12 h9 l-3 4 l3 4 h-9` }) : "",
        (n % Math.ceil(entries.length / 60 || 1) === 0 || n === entries.length - 1) &&
          svg("text", { class: "tick", x, y: height - 6 }, entry.version),
      ),
    );
  });
  return el("div", { class: "timeline", tabindex: "0", "aria-label": "Timeline" }, image);
}

function difference(report) {
  const title = el("p", {}, "From version ", el("strong", {}, report.before.version), " to ", el("strong", {}, report.after.version));
  if (report.same) return [title, el("p", { class: "quiet" }, "Nothing differs.")];
  const change = (before, after, text) => [text(before), "→", text(after)].join(" ");
  const facts = [
    ["rows", change(report.before.rows, report.after.rows, count)],
    ["size", change(report.before.bytes, report.after.bytes, size)],
    ["leaves", change(report.before.leaves, report.after.leaves, count)],
    ["added", count(report.added)],
    ["removed", count(report.removed)],
    ["changed", count(report.changed)],
  ];
  const notes = report.columns.map((text) => `column ${text}`);
  if (report.partition_by_before.join() !== report.partition_by_after.join()) {
    const shown = (fields) => fields.join(", ") || "nothing";
    notes.push(`partitioned by ${shown(report.partition_by_after)} instead of ${shown(report.partition_by_before)}`);
  }
  for (const [name, [before, after]] of Object.entries(report.properties)) {
    notes.push(`property ${name}: ${before ?? "not set"} → ${after ?? "not set"}`);
  }
  const most = Math.max(1, ...report.leaves.map((leaf) => Math.abs(leaf.rows_after - leaf.rows_before)));
  return [
    title,
    el("dl", { class: "pairs tight" }, facts.map(([k, v]) => [el("dt", {}, k), el("dd", {}, v)])),
    notes.length ? el("ul", { class: "notes" }, notes.map((text) => el("li", {}, text))) : "",
    report.leaves.length
      ? grid(
          ["", "partition", "rows", ""],
          report.leaves.map((leaf) => [
            el("span", { class: `sign ${leaf.kind}`, title: leaf.kind }, { added: "+", removed: "−", changed: "~" }[leaf.kind]),
            leaf.partition,
            `${short(leaf.rows_before)} → ${short(leaf.rows_after)}`,
            moved(leaf.rows_after - leaf.rows_before, most),
          ]),
          [2],
        )
      : "",
    report.more ? el("p", { class: "quiet" }, `and ${leaves(report.more)} more`) : "",
  ];
}

function moved(rows, most) {
  const width = 40 * (Math.abs(rows) / most);
  const kindOf = rows >= 0 ? "up" : "down";
  return svg(
    "svg",
    { class: "moved", width: 84, height: 10, viewBox: "0 0 84 10", "aria-hidden": "true" },
    svg("line", { class: "axis", x1: 42, x2: 42, y1: 0, y2: 10 }),
    svg("rect", { class: kindOf, x: rows >= 0 ? 42 : 42 - width, y: 1, width, height: 8, rx: 2 }),
  );
}
