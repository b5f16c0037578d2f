// The page: its header, its views, and the keyboard.

import { ask, latest } from "./api.js";
import { button, el, failure, hideTip } from "./dom.js";
import { count, short, size } from "./format.js";
import { history } from "./history.js";
import { closeLeaf } from "./leaf.js";
import { forget as forgetPartitions, partitions } from "./partitions.js";
import { forget as forgetPruning, pruning } from "./pruning.js";
import { schema } from "./schema.js";
import { state } from "./state.js";
import { upkeep } from "./upkeep.js";

const VIEWS = [
  ["partitions", "Partitions", partitions],
  ["pruning", "Pruning", pruning],
  ["history", "History", history],
  ["schema", "Schema", schema],
  ["upkeep", "Upkeep", upkeep],
];

const at = (id) => document.getElementById(id);

function current() {
  const name = location.hash.slice(1);
  return VIEWS.some(([id]) => id === name) ? name : VIEWS[0][0];
}

function drawTabs() {
  at("tabs").replaceChildren(
    ...VIEWS.map(([id, title], n) =>
      button(title, () => go(id), {
        id: `tab-${id}`,
        role: "tab",
        "aria-selected": String(id === current()),
        "aria-controls": "view",
        tabindex: id === current() ? 0 : -1,
        title: `${title} (${n + 1})`,
      }),
    ),
  );
}

function go(id) {
  if (location.hash === `#${id}`) show();
  else location.hash = id;
}

function drawHeader() {
  const { table } = state;
  const parts = table.uri.replace(/\/+$/, "").split("/");
  at("name").textContent = parts.at(-1) || table.uri;
  at("uri").textContent = table.uri;
  at("uri").title = table.uri;
  document.title = `${parts.at(-1)} · Phalanx`;
  const facts = [
    ["rows", short(table.rows), count(table.rows)],
    ["size", size(table.bytes), `${count(table.bytes)} bytes`],
    ["leaves", short(table.leaves), count(table.leaves)],
    ["files", short(table.files), count(table.files)],
    ["partitioned by", table.partition_by.join(", ") || "nothing", table.partition_by.join(", ")],
  ];
  at("facts").replaceChildren(
    ...facts.map(([name, text, title]) =>
      el("div", { class: name === "partitioned by" ? "long" : null }, el("dt", {}, name), el("dd", { title }, text)),
    ),
  );
  const isNewest = table.version === table.newest;
  at("version").replaceChildren(
    el("span", { class: `pill${isNewest ? "" : " old"}` }, `version ${table.version}`, isNewest ? "" : ` of ${table.newest}`),
    isNewest ? "" : button("newest", () => look(null), { class: "small" }),
  );
}

const show = latest(async (isCurrent) => {
  hideTip();
  closeLeaf();
  drawTabs();
  const view = at("view");
  const [id, , draw] = VIEWS.find(([name]) => name === current());
  // A view that is slow and no longer wanted draws into a place that is not on the page.
  const place = el("div", { class: `view view-${id}` });
  view.replaceChildren(place);
  try {
    await draw(place, look);
  } catch (error) {
    if (isCurrent()) place.replaceChildren(failure(error));
  }
  if (isCurrent()) view.dataset.ready = id;
});

/** Look at a version; null for the newest. */
async function look(version) {
  delete at("view").dataset.ready;
  try {
    state.table = await ask("table", { version });
    state.version = state.table.version;
  } catch (error) {
    at("view").replaceChildren(failure(error));
    return;
  }
  forgetPartitions();
  forgetPruning();
  drawHeader();
  if (version !== null && current() === "history") go(VIEWS[0][0]);
  else await show();
}

function toggleTheme() {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const now = document.documentElement.dataset.theme ?? (dark ? "dark" : "light");
  document.documentElement.dataset.theme = now === "dark" ? "light" : "dark";
}

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") {
    hideTip();
    closeLeaf();
    return;
  }
  const isTyping = /^(input|textarea|select)$/i.test(event.target.tagName);
  if (isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.getAttribute?.("role") === "tab" && /^Arrow(Left|Right)$/.test(event.key)) {
    const names = VIEWS.map(([id]) => id);
    const step = event.key === "ArrowRight" ? 1 : -1;
    const next = names[(names.indexOf(current()) + step + names.length) % names.length];
    location.hash = next;
    setTimeout(() => at(`tab-${next}`)?.focus());
    return;
  }
  const number = Number(event.key);
  if (number >= 1 && number <= VIEWS.length) go(VIEWS[number - 1][0]);
  if (event.key === "d") toggleTheme();
  if (event.key === "r") look(null);
});

at("theme").addEventListener("click", toggleTheme);
at("reload").addEventListener("click", () => look(null));
addEventListener("hashchange", () => {
  delete at("view").dataset.ready;
  show();
});
look(null);
