// Reads an array of messages on standard input, signs each with the official
// library, verifies the given signature if asked to, and writes the answers.
// Bodies come as base64, so that no encoding on the way changes a byte.
import { readFileSync } from "node:fs";
import { Webhook } from "standardwebhooks";

const messages = JSON.parse(readFileSync(0, "utf8"));
const answers = messages.map((m) => {
  const body = Buffer.from(m.body, "base64").toString("utf8");
  const hook = new Webhook(m.secret);
  const answer = { signature: hook.sign(m.id, new Date(m.timestamp * 1000), body) };
  if (m.verify) {
    try {
      hook.verify(body, {
        "webhook-id": m.id,
        "webhook-timestamp": String(m.timestamp),
        "webhook-signature": m.signature,
      });
      answer.verified = true;
    } catch (e) {
      answer.error = String(e);
    }
  }
  return answer;
});
process.stdout.write(JSON.stringify(answers));
