// The pruning simulator: type a filter, and see leaves go dark one partition field at a time.

import { ask, latest } from "./api.js";
import { button, card, el, failure, grid, hideTip } from "./dom.js";
import { count, leaves, percent, short, size, things } from "./format.js";
import { crumbs, icicle, share } from "./icicle.js";
import { openLeaf } from "./leaf.js";
import { state } from "./state.js";

const chosen = { where: "", step: null, focus: null };
const PAUSE = 900;

export function pruning(view) {
  const by = state.table.has_sizes ? "rows" : "leaves";
  const input = el("textarea", {
    id: "where",
    rows: 2,
    spellcheck: "false",
    placeholder: "country = 'US' AND ts >= '2025-06-01'",
    "aria-label": "Filter, as after WHERE",
    "aria-describedby": "where-help",
  });
  input.value = chosen.where;
  const outcome = el("div", { class: "outcome", "aria-live": "polite" });
  const stage = el("div", { class: "stage" });
  const table = el("div", { class: "funnel" });
  const details = el("div", { class: "columns" });
  let answer = null;
  let timer = null;
  let playing = null;

  const draw = latest(async (isCurrent) => {
    try {
      const tree = await ask("tree", {
        by,
        version: state.version,
        where: answer ? chosen.where : "",
        step: answer && chosen.step !== null ? chosen.step : undefined,
        ...chosen.focus,
      });
      if (!isCurrent()) return;
      const up = () => tree.path.length && open(tree.path.at(-2) ?? null);
      stage.replaceChildren(
        crumbs(tree.path, open),
        icicle(tree.branches, { by, pruning: Boolean(answer), open, up }),
      );
    } catch (error) {
      if (isCurrent()) stage.replaceChildren(failure(error));
    }
  });

  function open(node) {
    hideTip();
    if (node?.is_leaf && node.leaves === 1) {
      openLeaf(node.leaf, chosen.where);
      return;
    }
    chosen.focus = node ? { leaf: node.leaf, depth: node.depth } : null;
    draw();
  }

  const apply = latest(async (isCurrent) => {
    chosen.where = input.value.trim().replace(/^where\s+/i, "");
    input.removeAttribute("aria-invalid");
    stop();
    if (!chosen.where) {
      answer = null;
      outcome.replaceChildren(hint());
      table.replaceChildren();
      details.replaceChildren();
      await draw();
      return;
    }
    try {
      const next = await ask("prune", { where: chosen.where, version: state.version });
      if (!isCurrent()) return;
      answer = next;
      chosen.step = null;
      show();
      await draw();
    } catch (error) {
      if (!isCurrent()) return;
      input.setAttribute("aria-invalid", "true");
      outcome.replaceChildren(failure(error));
    }
  });

  function hint() {
    const examples = state.table.columns
      .filter((column) => column.partition_fields.length)
      .slice(0, 3)
      .map((column) => `${column.name} IS NULL`);
    return el(
      "p",
      { class: "quiet", id: "where-help" },
      "Columns and partition fields may be named. Try ",
      examples.map((text) =>
        button(text, () => {
          input.value = text;
          apply();
        }, { class: "chip" }),
      ),
    );
  }

  function stop() {
    clearInterval(playing);
    playing = null;
  }

  const deepest = () => Math.max(0, ...answer.steps.map((step) => step.depth));

  function goTo(step) {
    chosen.step = step >= deepest() ? null : step;
    show();
    return draw();
  }

  function play() {
    stop();
    let step = 0;
    goTo(0);
    playing = setInterval(() => {
      step += 1;
      goTo(step);
      if (step >= deepest()) stop();
    }, PAUSE);
  }

  function show() {
    const now = chosen.step ?? deepest();
    const pruned = answer.total - answer.selected;
    outcome.replaceChildren(
      el(
        "div",
        { class: "figures" },
        figure(percent(pruned, answer.total), `${count(pruned)} of ${leaves(answer.total)} pruned`, "good"),
        figure(count(answer.selected), answer.selected === 1 ? "leaf to read" : "leaves to read"),
        answer.rows !== null &&
          figure(short(answer.rows), `of ${short(answer.all_rows)} rows to look at`),
        answer.all_bytes !== null &&
          figure(size(answer.bytes), `of ${size(answer.all_bytes)} to read`),
        figure(count(answer.certain), "match whole: no filter left"),
      ),
      answer.steps.length ? stepper(now) : "",
    );
    table.replaceChildren(answer.steps.length ? card("What each field prunes", funnel(now)) : "");
    details.replaceChildren(
      card(
        "Read",
        answer.read.length
          ? grid(
              ["partition", "rows", "filter that is left"],
              answer.read.map((leaf) => [
                button(leaf.name, () => openLeaf(leaf.leaf, chosen.where), { class: "link" }),
                count(leaf.rows),
                leaf.residual ? el("code", {}, leaf.residual) : "none: every row matches",
              ]),
              [1],
            )
          : el("p", { class: "quiet" }, "Nothing is left to read."),
        answer.selected > answer.read.length &&
          el("p", { class: "quiet" }, `and ${count(answer.selected - answer.read.length)} more`),
      ),
      card(
        "Pruned, and why",
        answer.pruned.length
          ? grid(
              ["partition", "rows", "reason"],
              answer.pruned.map((leaf) => [
                button(leaf.name, () => openLeaf(leaf.leaf, chosen.where), { class: "link" }),
                count(leaf.rows),
                leaf.reason,
              ]),
              [1],
            )
          : el("p", { class: "quiet" }, "No partition can be left out by this filter."),
        pruned > answer.pruned.length &&
          el("p", { class: "quiet" }, `and ${count(pruned - answer.pruned.length)} more`),
      ),
    );
  }

  function stepper(now) {
    const range = el("input", {
      type: "range",
      min: 0,
      max: deepest(),
      value: now,
      "aria-label": "How many partition fields are applied",
      oninput: (event) => {
        stop();
        goTo(Number(event.target.value));
      },
    });
    const text = now >= deepest() ? "all fields" : `the first ${things(now, "field")}`;
    return el(
      "div",
      { class: "stepper" },
      button("▶ Step through", play, { class: "primary", id: "play" }),
      range,
      el("span", { class: "quiet" }, now === 0 ? "no field applied" : `${text} applied`),
    );
  }

  function funnel(now) {
    const rows = answer.steps.map((step) =>
      el(
        "tr",
        { class: step.depth > now ? "later" : null },
        el("td", {}, `v${step.spec}`),
        el("td", {}, step.field ? el("code", {}, step.spelled) : "the filter itself"),
        el("td", {}, step.condition ? el("code", {}, step.condition) : el("span", { class: "quiet" }, "says nothing about it")),
        el("td", { class: "number" }, `${count(step.before)} → ${count(step.after)}`),
        el("td", {}, share(step.after, step.before)),
        el("td", { class: "number" }, step.before - step.after ? `−${short(step.rows_pruned)} rows` : ""),
        el("td", { class: "number" }, step.before - step.after ? `−${size(step.bytes_pruned)}` : ""),
      ),
    );
    const titles = ["spec", "field", "filter", "leaves", "left", "rows pruned", "size pruned"];
    return el(
      "div",
      { class: "scroll" },
      el(
        "table",
        { id: "funnel" },
        el("thead", {}, el("tr", {}, titles.map((t, n) => el("th", { class: [3, 5, 6].includes(n) ? "number" : null }, t)))),
        el("tbody", {}, rows),
      ),
    );
  }

  input.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(apply, 350);
  });
  input.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey) {
      event.preventDefault();
      clearTimeout(timer);
      apply();
    }
  });

  view.replaceChildren(
    card(
      null,
      el("label", { class: "where", for: "where" }, el("span", { class: "keyword" }, "WHERE"), input),
      outcome,
      stage,
    ),
    table,
    details,
  );
  return apply();
}

function figure(number, text, kind) {
  return el("div", { class: `figure-card ${kind ?? ""}` }, el("strong", {}, number), el("span", {}, text));
}

export function forget() {
  chosen.focus = null;
}
