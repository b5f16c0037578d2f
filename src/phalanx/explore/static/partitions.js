// The partition tree: sizes, skew and small leaves, level by level.

import { ask, latest } from "./api.js";
import { card, choice, el, failure, grid, hideTip } from "./dom.js";
import { count, measure, size } from "./format.js";
import { COLORS, crumbs, icicle, legend } from "./icicle.js";
import { openLeaf } from "./leaf.js";
import { state } from "./state.js";

const chosen = { by: null, color: "level", focus: null };

export function partitions(view) {
  if (!chosen.by) chosen.by = state.table.has_sizes ? "rows" : "leaves";
  const stage = el("div", { class: "stage" });
  const below = el("div", { class: "levels" });
  const key = el("div", { class: "key" });
  const load = latest(async (isCurrent) => {
    hideTip();
    try {
      const answer = await ask("tree", { by: chosen.by, version: state.version, ...chosen.focus });
      if (isCurrent()) show(answer);
    } catch (error) {
      if (isCurrent()) stage.replaceChildren(failure(error));
    }
  });

  function open(node) {
    if (node?.is_leaf && node.leaves === 1) {
      openLeaf(node.leaf);
      return;
    }
    chosen.focus = node ? { leaf: node.leaf, depth: node.depth } : null;
    load();
  }

  function show(answer) {
    const { path, branches } = answer;
    const up = () => path.length && open(path.at(-2) ?? null);
    key.replaceChildren(legend(chosen.color) ?? "");
    stage.replaceChildren(
      crumbs(path, open),
      branches.length
        ? icicle(branches, { by: chosen.by, color: chosen.color, open, up })
        : el("p", { class: "quiet" }, "The table has no rows yet."),
    );
    below.replaceChildren(...levels(answer));
  }

  view.replaceChildren(
    card(
      null,
      el(
        "div",
        { class: "controls" },
        choice("Width", state.table.measures.map((m) => [m, m]), chosen.by, (value) => {
          chosen.by = value;
          load();
        }),
        choice("Color", COLORS, chosen.color, (value) => {
          chosen.color = value;
          load();
        }),
        key,
      ),
      stage,
    ),
    below,
  );
  return load();
}

function levels(answer) {
  if (!answer.levels.length) return [];
  const rows = answer.levels.map((level) => [
    `v${level.spec}`,
    el("code", {}, level.spelled),
    count(level.nodes),
    count(level.median_rows),
    count(level.largest_rows),
    size(level.median_bytes),
    size(level.largest_bytes),
    count(level.median_files),
  ]);
  const titles = ["spec", "level", "partitions", "median rows", "largest", "median size", "largest", "median files"];
  return [card("Levels", grid(titles, rows, [2, 3, 4, 5, 6, 7]))];
}

export function forget() {
  chosen.focus = null;
}
