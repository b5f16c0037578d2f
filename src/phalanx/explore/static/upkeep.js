// What `advise` and `check` say.

import { ask } from "./api.js";
import { button, card, el, failure, grid } from "./dom.js";
import { count, things } from "./format.js";

export async function upkeep(view) {
  const result = el("div", { id: "check" }, el("p", { class: "quiet" }, "It looks at every leaf and every file, and changes nothing."));
  const run = button("Check the table", check, { class: "primary", id: "run-check" });

  async function check() {
    run.disabled = true;
    result.replaceChildren(el("p", { class: "quiet" }, "Looking at every leaf …"));
    try {
      result.replaceChildren(...checked(await ask("check")));
    } catch (error) {
      result.replaceChildren(failure(error));
    }
    run.disabled = false;
  }

  const advice = el("div", { id: "advice" }, el("p", { class: "quiet" }, "Reading …"));
  view.replaceChildren(
    el("div", { class: "columns" }, card("Advice", advice), card("Check", run, result)),
  );
  try {
    advice.replaceChildren(...advised(await ask("advise")));
  } catch (error) {
    advice.replaceChildren(failure(error));
  }
}

function advised(answer) {
  if (answer.ok) return [el("p", { class: "fine" }, "✓ Nothing to do: partitions and files are of good size.")];
  return answer.findings.map((finding) =>
    el(
      "article",
      { class: "finding" },
      el("span", { class: `badge ${finding.kind === "better" ? "adds" : "changes"}` }, finding.kind === "better" ? "suggestion" : finding.kind),
      el("p", {}, finding.text),
      finding.examples.length ? el("p", { class: "quiet" }, `such as ${finding.examples.slice(0, 3).join("; ")}`) : "",
      finding.actions.length ? el("pre", {}, finding.actions.join("\n")) : "",
    ),
  );
}

function checked(answer) {
  const seen = `${things(answer.leaves, "leaf", "leaves")}, ${things(answer.snapshots, "snapshot")}, ${things(answer.files, "file")}`;
  return [
    answer.ok
      ? el("p", { class: "fine" }, `✓ The table is whole: ${seen}.`)
      : el("p", { class: "failure" }, `There is damage: ${seen}.`),
    answer.problems.length
      ? grid(
          ["", "kind", "what", "where"],
          answer.problems.map((problem) => [
            problem.harmless ? el("span", { class: "quiet" }, "harmless") : el("span", { class: "badge removes" }, "damage"),
            problem.kind,
            problem.what,
            el("span", { class: "mono" }, problem.where),
          ]),
        )
      : "",
    answer.more ? el("p", { class: "quiet" }, `and ${count(answer.more)} more`) : "",
  ];
}
