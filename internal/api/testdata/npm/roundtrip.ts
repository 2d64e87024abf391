// A user's program against the types that openapi-typescript makes of the description:
// it compiles under strict rules, and every step has to come back as described.
import createClient from "openapi-fetch";
import type { components, paths } from "./schema.js";

const [url, key, endpoint] = process.argv.slice(2) as [string, string, string];
const client = createClient<paths>({ baseUrl: url, headers: { Authorization: `Bearer ${key}` } });

function got<T>(answer: { data?: T; error?: components["schemas"]["Problem"] | undefined }): T {
  if (answer.data === undefined) throw new Error(JSON.stringify(answer.error));
  return answer.data;
}

const created = got(await client.POST("/v1/subscriptions", { body: { url: endpoint, event_types: ["invoice.*"], disable_after: null } }));
if (!created.secret.startsWith("whsec_") || created.disable_after !== null) throw new Error("created: " + JSON.stringify(created));
const path = { id: created.id };

const changed = got(await client.PATCH("/v1/subscriptions/{id}", { params: { path }, body: { description: "books", max_in_flight: null } }));
if (changed.description !== "books" || changed.state !== "active") throw new Error("changed: " + JSON.stringify(changed));

const event = { id: "from-typescript", type: "invoice.paid", asset: "i-1", payload: { n: 1 } };
const sent = got(await client.POST("/v1/events", { body: { events: [event] } }));
const again = got(await client.POST("/v1/events", { body: { events: [event] } }));
if (sent.data[0]?.duplicate !== false || again.data[0]?.duplicate !== true) throw new Error("sent: " + JSON.stringify([sent, again]));

const list = got(await client.GET("/v1/subscriptions/{id}/deliveries", { params: { path, query: { state: ["pending", "delivering", "delivered"], limit: 10 } } }));
const state: "pending" | "delivering" | "delivered" | "dead" | "discarded" | undefined = list.data[0]?.state;
if (list.data.length !== 1 || list.next_cursor !== null || state === undefined) throw new Error("listed: " + JSON.stringify(list));

const missing = await client.GET("/v1/subscriptions/{id}", { params: { path: { id: "sub_1" } } });
if (missing.error?.code !== "not_found" || missing.response.status !== 404) throw new Error("missing: " + JSON.stringify(missing.error));

const removed = await client.DELETE("/v1/subscriptions/{id}", { params: { path } });
if (removed.response.status !== 204) throw new Error("removed: " + removed.response.status);
console.log("round trip complete");
