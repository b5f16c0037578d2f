// What all views share: the facts about the table, and the version that is looked at.

export const state = { table: null, version: null };
