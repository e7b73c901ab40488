// The API as functions. Every failure becomes an Error whose message can be shown as it is.

async function refusal(response) {
  try {
    const { detail } = await response.json();
    if (typeof detail === "string") return detail;
  } catch { /* not JSON */ }
  return `The server answered ${response.status}.`;
}

async function reach(path, options) {
  let response;
  try {
    response = await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The server does not answer. Is `letgo app` still running?");
  }
  if (!response.ok) throw new Error(await refusal(response));
  return response;
}

const posted = (body, signal) => ({
  method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), signal,
});

export const get = async (path) => (await reach(path)).json();
export const post = async (path, body, signal) => (await reach(path, posted(body, signal))).json();

/** Server-sent events of a POST, one by one, as [name, data]. */
export async function* stream(path, body, signal) {
  const response = await reach(path, posted(body, signal));
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  try {
    while (true) {
      const { value, done } = await reader.read();
      if (done) break;
      text += value;
      const parts = text.split("\n\n");
      text = parts.pop();
      for (const part of parts) {
        const name = /^event: (.*)$/m.exec(part)?.[1];
        if (!name) continue; // a heartbeat
        const data = JSON.parse(/^data: (.*)$/m.exec(part)[1]);
        if (name === "error") throw new Error(data.detail);
        yield [name, data];
        if (name === "done") return; // however late the connection closes
      }
    }
  } catch (error) {
    if (error instanceof TypeError) throw new Error("The connection broke. Press Run to start again.");
    throw error;
  } finally {
    reader.cancel().catch(() => {});
  }
  throw new Error("The connection ended early. Press Run to start again.");
}
