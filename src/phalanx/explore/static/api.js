// Questions to the server. The address of the page has the secret in it, so paths are relative.

export async function ask(name, parameters = {}) {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(parameters)) {
    if (value !== null && value !== undefined && value !== "") query.set(key, value);
  }
  const text = query.toString();
  let response;
  try {
    response = await fetch(`api/${name}${text ? `?${text}` : ""}`);
  } catch {
    throw new Error("The explorer does not answer: it may have been stopped.");
  }
  const answer = await response.json().catch(() => ({ error: response.statusText }));
  if (!response.ok) throw new Error(answer.error ?? response.statusText);
  return answer;
}

/** Runs the newest of several requests: an earlier one that ends later is ignored. */
export function latest(run) {
  let number = 0;
  return async (...values) => {
    const mine = ++number;
    const isCurrent = () => mine === number;
    await run(isCurrent, ...values);
  };
}
