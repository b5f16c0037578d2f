// The drawer that shows one leaf: where it is, how large, and its rows.

import { ask } from "./api.js";
import { button, cell, el, failure, grid, hideTip } from "./dom.js";
import { count, size } from "./format.js";
import { state } from "./state.js";

const drawer = () => document.getElementById("drawer");
let opener = null;

export function closeLeaf() {
  if (drawer().hidden) return false;
  drawer().hidden = true;
  opener?.focus?.();
  return true;
}

export async function openLeaf(leaf, where) {
  hideTip();
  opener = document.activeElement;
  const node = drawer();
  const body = el("div", { class: "body" }, el("p", { class: "quiet" }, "Reading rows …"));
  const heading = el("h2", { tabindex: "-1" }, "Partition");
  node.replaceChildren(
    el("header", {}, heading, button("×", closeLeaf, { class: "icon", title: "Close (Escape)" })),
    body,
  );
  node.hidden = false;
  heading.focus();
  try {
    const answer = await ask("leaf", { leaf, where, version: state.version });
    heading.textContent = answer.name;
    const facts = [
      ["rows", count(answer.rows)],
      ["size", size(answer.bytes)],
      ["files", count(answer.files)],
      ["spec", `v${answer.spec}`],
      ["Lance version", answer.lance_version ?? "newest on main"],
      ["URI", answer.uri],
    ];
    const titles = answer.columns.map((column) => [
      column.name,
      el("small", {}, column.type),
    ]);
    const numbers = answer.columns.flatMap((column, n) =>
      /^(u?int|float|double|half|decimal)/.test(column.type) ? [n] : [],
    );
    body.replaceChildren(
      answer.reason ? el("p", { class: "reason" }, `Pruned: ${answer.reason}`) : "",
      el("dl", { class: "pairs" }, facts.map(([k, v]) => [el("dt", {}, k), el("dd", { class: "mono" }, v)])),
      el("h3", {}, answer.cells.length ? `The first ${answer.cells.length} rows` : "No rows"),
      grid(titles, answer.cells.map((row) => row.map(cell)), numbers),
    );
  } catch (error) {
    body.replaceChildren(failure(error));
  }
}
