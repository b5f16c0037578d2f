// Columns and specs with their ids, now and over time.

import { ask } from "./api.js";
import { card, el, grid } from "./dom.js";
import { leaves, time } from "./format.js";

export async function schema(view) {
  const answer = await ask("schema");
  const columns = answer.columns.map((column) => [
    el("span", { class: "id" }, column.id),
    el("strong", {}, column.name),
    el("code", {}, column.type),
    column.nullable ? "" : el("span", { class: "badge keeps" }, "NOT NULL"),
    column.default ? el("code", {}, column.default) : "",
    column.partition_fields.map((field) => el("span", { class: "field" }, field)),
  ]);
  const specs = answer.specs.map((spec) =>
    el(
      "li",
      { class: spec.is_current ? "current" : null },
      el("span", { class: "spec-id" }, `v${spec.id}`),
      el(
        "span",
        { class: "chain" },
        spec.fields.length
          ? spec.fields.map((field) =>
              el("span", { class: "link-field" }, el("code", {}, field.spelled), el("small", {}, `${field.id} · ${field.type}`)),
            )
          : el("span", { class: "quiet" }, "nothing: one leaf"),
      ),
      el("span", { class: "quiet" }, leaves(spec.leaves)),
      spec.is_current ? el("span", { class: "badge adds" }, "new rows") : "",
    ),
  );
  const changes = answer.changes.map((change) =>
    el(
      "li",
      {},
      el("span", { class: "dot" }),
      el("div", {}, el("strong", {}, `version ${change.version}`), " ", el("span", { class: "badge shapes" }, change.operation), " ", el("span", { class: "quiet mono" }, time(change.committed_at))),
      change.columns.map((text) => el("p", {}, text)),
      change.partition_by
        ? el("p", {}, "partitioned by ", el("code", {}, change.partition_by[1].join(", ") || "nothing"), " instead of ", el("code", {}, change.partition_by[0].join(", ") || "nothing"))
        : "",
    ),
  );
  view.replaceChildren(
    card("Columns", grid(["id", "column", "type", "", "default", "partitioned by"], columns, [0])),
    el(
      "div",
      { class: "columns" },
      card("Partition specs", el("ul", { class: "specs" }, specs)),
      card("Over time", changes.length ? el("ol", { class: "changes" }, changes) : el("p", { class: "quiet" }, "No change is remembered.")),
    ),
  );
}
