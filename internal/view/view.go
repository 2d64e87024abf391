// Package view is what Postlane shows of its things as JSON, the same from the API and
// from the CLI. It holds no secret and no payload.
package view

import (
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/delivery/sender"
)

// List is a page.
type List[T any] struct {
	Data []T `json:"data"`
	// NextCursor is where the next page begins, null on the last.
	NextCursor *string `json:"next_cursor" doc:"Where the next page begins; null on the last"`
}

// NewList returns a page; no items are [] and not null.
func NewList[T any](items []T, next string) List[T] {
	if items == nil {
		items = []T{}
	}
	l := List[T]{Data: items}
	if next != "" {
		l.NextCursor = &next
	}
	return l
}

// Subscription is delivery.Subscription.
type Subscription struct {
	ID           string      `json:"id"`
	Tenant       string      `json:"tenant"`
	URL          string      `json:"url"`
	Description  *string     `json:"description"`
	EventTypes   []string    `json:"event_types" doc:"Exact (invoice.paid), by prefix (invoice.*) or all (*)"`
	Conditions   []Condition `json:"conditions" doc:"What the payload of an event has to meet, all of them"`
	State        string      `json:"state" enum:"active,paused,disabled" doc:"active; paused by a person; disabled by the system. What is pending stays, in order"`
	StateReason  *string     `json:"state_reason" doc:"Why, where somebody or something said"`
	StateSince   time.Time   `json:"state_since"`
	OnDead       string      `json:"on_dead" enum:"continue,hold" doc:"Whether a dead letter lets its stream go on or holds it"`
	MaxAttempts  int         `json:"max_attempts"`
	MaxInFlight  *int        `json:"max_in_flight" doc:"null: the dispatcher's own limit"`
	RateLimit    *string     `json:"rate_limit" doc:"Requests per time, such as 100/s, 10/m or 10/30s; null: none"`
	DisableAfter *int        `json:"disable_after" doc:"null: never"`
	FailureCount int         `json:"failure_count" doc:"Deliveries that died in a row"`
	Breaker      *Breaker    `json:"breaker" doc:"Open while the endpoint is not there and only probes are sent to it; else null"`
	HeaderNames  []string    `json:"header_names" doc:"Of the headers of its own; their values are not shown"`
	V1a          bool        `json:"v1a"`
	Thin         bool        `json:"thin" doc:"It is sent which event there is, and not its payload"`
	PublicKey    *string     `json:"public_key" doc:"Verifies v1a signatures (whpk_); null without them"`
	CreatedAt    time.Time   `json:"created_at"`
	UpdatedAt    time.Time   `json:"updated_at"`
}

// Breaker is delivery.Breaker.
type Breaker struct {
	OpenSince   time.Time `json:"open_since"`
	NextProbeAt time.Time `json:"next_probe_at" doc:"When the next request may be sent; while one is open, when another may if nothing comes of it"`
	Failures    int       `json:"failures" doc:"Requests that failed in a row"`
}

// NewSubscription returns the view of a subscription.
func NewSubscription(s *delivery.Subscription) Subscription {
	v := Subscription{
		ID: s.ID.String(), Tenant: s.Tenant, URL: s.URL, Description: s.Description, EventTypes: s.EventTypes, State: string(s.State),
		StateReason: some(s.Reason), StateSince: s.Since.UTC(), OnDead: string(s.OnDead), MaxAttempts: s.MaxAttempts,
		MaxInFlight: someInt(s.MaxInFlight), RateLimit: some(s.RateLimit.String()), FailureCount: s.Failures, HeaderNames: append([]string{}, s.HeaderNames...),
		V1a: s.V1a, Thin: s.Thin, PublicKey: some(s.PublicKey), CreatedAt: s.Created.UTC(), UpdatedAt: s.Updated.UTC(),
	}
	if s.DisableAfter > 0 {
		v.DisableAfter = &s.DisableAfter
	}
	v.Conditions = newConditions(s.Conditions)
	if b := s.Breaker; b != nil {
		v.Breaker = &Breaker{OpenSince: b.Since.UTC(), NextProbeAt: b.NextProbe.UTC(), Failures: b.Failures}
	}
	return v
}

// Signing explains how to verify what a subscription receives.
type Signing struct {
	Scheme    string `json:"scheme"`
	Headers   string `json:"headers"`
	Signed    string `json:"signed_content"`
	Timestamp string `json:"timestamp"`
	Libraries string `json:"libraries"`
	Snippet   string `json:"snippet"`
}

// SigningExplained is the answer to "how do I verify this".
var SigningExplained = Signing{
	Scheme:    "Standard Webhooks v1: base64 of HMAC-SHA256, keyed with the bytes that the secret's base64 after whsec_ stands for",
	Headers:   "webhook-id, webhook-timestamp, webhook-signature (one or more v1,SIGNATURE with a space between; any one that fits will do)",
	Signed:    "webhook-id + '.' + webhook-timestamp + '.' + the raw body, before any parsing",
	Timestamp: "the second at which this attempt was sent. Refuse one that is more than 5 minutes from your clock, either way: otherwise whoever captures a request can send it again later. Remember webhook-id for that long, and a repeated event is recognised too",
	Libraries: "https://www.standardwebhooks.com lists verifiers for many languages",
	Snippet:   snippet,
}

// snippet verifies a request in a language that most can read. It throws on what is
// not to be trusted, and returns the body.
const snippet = `import { createHmac, timingSafeEqual } from "node:crypto";

// headers: the request's, names in small letters; body: a Buffer of its raw bytes
export function verify(secret, headers, body) {
  const id = headers["webhook-id"], timestamp = headers["webhook-timestamp"];
  if (!(Math.abs(Date.now() / 1000 - Number(timestamp)) <= 300)) throw new Error("too old, or from the future");
  const key = Buffer.from(secret.replace("whsec_", ""), "base64");
  const expected = createHmac("sha256", key).update(id + "." + timestamp + ".").update(body).digest();
  for (const part of String(headers["webhook-signature"]).split(" ")) {
    const [version, text] = part.split(",");
    const given = Buffer.from(text ?? "", "base64");
    if (version === "v1" && given.length === expected.length && timingSafeEqual(given, expected)) return body;
  }
  throw new Error("no signature fits");
}
`

// SubscriptionWithSecret is the answer to creating one.
type SubscriptionWithSecret struct {
	Subscription
	Secret  string  `json:"secret" doc:"Shown only here"`
	Signing Signing `json:"signing"`
}

// RotatedSecret is the answer to rotating one.
type RotatedSecret struct {
	ID      string `json:"id"`
	Secret  string `json:"secret" doc:"Shown only here"`
	Overlap int    `json:"overlap_seconds"`
	// PublicKey is the new one, where v1a is chosen.
	PublicKey *string `json:"public_key" doc:"The new one, where v1a is chosen"`
	Signing   Signing `json:"signing"`
}

// Delivery is delivery.Delivery.
type Delivery struct {
	ID           string     `json:"id"`
	Subscription string     `json:"subscription_id"`
	EventID      string     `json:"event_id"`
	EventType    string     `json:"event_type"`
	Asset        *string    `json:"asset" doc:"null: one of the stream of events without"`
	State        string     `json:"state" enum:"pending,delivering,delivered,dead,discarded"`
	Held         bool       `json:"held" doc:"Dead, and holding its stream"`
	Reason       *string    `json:"reason" doc:"Why it is dead, held or discarded"`
	Attempts     int        `json:"attempts" doc:"Since it was written or last retried by hand"`
	CreatedAt    time.Time  `json:"created_at"`
	DueAt        *time.Time `json:"due_at" doc:"Waits for this time; null: for its turn only"`
	SettledAt    *time.Time `json:"settled_at"`
}

// NewDelivery returns the view of a delivery of a subscription.
func NewDelivery(sub delivery.SubscriptionID, d *delivery.Delivery) Delivery {
	return Delivery{
		ID: d.ID.String(), Subscription: sub.String(), EventID: d.EventID, EventType: d.EventType, Asset: some(d.Asset), State: string(d.State),
		Held: d.Held, Reason: some(d.Reason), Attempts: d.Attempts, CreatedAt: d.Created.UTC(), DueAt: utc(d.Due), SettledAt: utc(d.Settled),
	}
}

// Attempt is delivery.Attempt, without what is for operators only.
type Attempt struct {
	// Manual says that it came after somebody had retried the dead letter; when and who.
	Manual      bool       `json:"manual" doc:"Made after somebody had retried the dead letter by hand"`
	RetriedAt   *time.Time `json:"retried_at" doc:"When that was"`
	RetriedBy   *string    `json:"retried_by" doc:"Who that was"`
	Number      int        `json:"number"`
	StartedAt   time.Time  `json:"started_at"`
	Outcome     string     `json:"outcome" doc:"A short stable word; meaning says it in a sentence"`
	Meaning     string     `json:"meaning"`
	Status      *int       `json:"status" doc:"null: no answer came. Any number: endpoints answer 0, 20 and 999"`
	DurationMS  *int64     `json:"duration_ms"`
	DNSMS       float64    `json:"dns_ms"`
	ConnectMS   float64    `json:"connect_ms"`
	TLSMS       float64    `json:"tls_ms"`
	FirstByteMS float64    `json:"first_byte_ms"`
	Answer      *string    `json:"answer" doc:"The beginning of what the endpoint said, as text: show it as text only"`
	AnswerCut   bool       `json:"answer_cut" doc:"It said more"`
}

// NewAttempt returns the view of an attempt. The answer is shown as text, with a mark
// for each byte that is none.
func NewAttempt(a *delivery.Attempt) Attempt {
	v := Attempt{
		Number: a.Number, StartedAt: a.Started.UTC(), Outcome: a.Outcome, Meaning: meaning(a.Outcome), Status: a.Status, AnswerCut: a.AnswerCut,
		DNSMS: ms(a.DNS), ConnectMS: ms(a.Connect), TLSMS: ms(a.TLS), FirstByteMS: ms(a.FirstByte),
	}
	if a.Duration != nil {
		n := a.Duration.Milliseconds()
		v.DurationMS = &n
	}
	if len(a.Answer) > 0 {
		text := Printable(a.Answer)
		v.Answer = &text
	}
	return v
}

// Revival is delivery.Revival.
type Revival struct {
	At time.Time `json:"at"`
	By *string   `json:"by" doc:"Who asked for it; null: a program that did not say"`
}

// DeliveryWithAttempts is a delivery and its history.
type DeliveryWithAttempts struct {
	Delivery
	History  []Attempt `json:"attempts_made" doc:"First to last, those before a retry by hand included"`
	Revivals []Revival `json:"retries" doc:"Retries by hand"`
	Replay   *string   `json:"replay" doc:"The id of the replay that made it; null: it was written with its event"`
}

// NewDeliveryWithAttempts returns the view of a delivery with all that happened to it.
func NewDeliveryWithAttempts(sub delivery.SubscriptionID, d *delivery.Delivery, attempts []delivery.Attempt, revivals []delivery.Revival, origin delivery.ReplayOrigin) DeliveryWithAttempts {
	v := DeliveryWithAttempts{
		Delivery: NewDelivery(sub, d), History: make([]Attempt, len(attempts)), Revivals: make([]Revival, len(revivals)), Replay: some(origin.ID),
	}
	for i, r := range revivals {
		v.Revivals[i] = Revival{At: r.At.UTC(), By: some(r.By)}
	}
	for i := range attempts {
		v.History[i] = NewAttempt(&attempts[i])
		if r := delivery.RevivalOf(&attempts[i], revivals); r != nil {
			v.History[i].Manual, v.History[i].RetriedAt, v.History[i].RetriedBy = true, utc(&r.At), some(r.By)
		}
	}
	return v
}

// Stream is delivery.Stream.
type Stream struct {
	Asset *string `json:"asset"`
	Depth int     `json:"depth" doc:"Deliveries in it, the head included, counted up to 1,000"`
	// State is held, in_flight, retrying, stopped (the subscription is) or waiting.
	State string `json:"state" enum:"held,in_flight,retrying,stopped,waiting" doc:"stopped: its subscription is paused or disabled"`
	// Reason says it in words; Since is when the head was written, or died.
	Reason     string    `json:"reason"`
	Since      time.Time `json:"since" doc:"When the head was written, or died"`
	InFlightMS *int64    `json:"in_flight_ms"`
	Head       Delivery  `json:"head"`
}

// NewStream returns the view of a stream of a subscription.
func NewStream(sub *delivery.Subscription, s *delivery.Stream) Stream {
	v := Stream{Asset: some(s.Asset), Depth: s.Depth, Head: NewDelivery(sub.ID, &s.Head), Since: s.Since.UTC()}
	if s.InFlight >= 0 {
		n := s.InFlight.Milliseconds()
		v.InFlightMS = &n
	}
	switch {
	case s.Head.Held:
		v.State, v.Reason = "held", "the head is dead and holds the stream: "+s.Head.Reason
	case s.InFlight >= 0:
		v.State, v.Reason = "in_flight", "the head is being sent"
	case sub.State != delivery.Active:
		v.State, v.Reason = "stopped", "the subscription is "+string(sub.State)
	case s.Head.Due != nil && s.Head.Attempts == 0:
		v.State, v.Reason = "waiting", "the head waits for its time"
	case s.Head.Due != nil:
		v.State, v.Reason = "retrying", "the head failed and waits for its next attempt"
	default:
		v.State, v.Reason = "waiting", "the head waits for its turn"
	}
	return v
}

// Event is delivery.StoredEvent.
type Event struct {
	ID          string    `json:"id"`
	Tenant      string    `json:"tenant"`
	Type        string    `json:"type"`
	Asset       *string   `json:"asset"`
	ContentType string    `json:"content_type"`
	PayloadSize int       `json:"payload_bytes"`
	Seq         int64     `json:"seq"`
	CreatedAt   time.Time `json:"created_at"`
}

// NewEvent returns the view of an event.
func NewEvent(e *delivery.StoredEvent) Event {
	return Event{
		ID: e.ID, Tenant: e.Tenant, Type: e.Type, Asset: some(e.Asset), ContentType: e.ContentType, PayloadSize: e.PayloadSize, Seq: e.Seq,
		CreatedAt: e.Created.UTC(),
	}
}

// Test is the outcome of a test request.
type Test struct {
	Delivered  bool   `json:"delivered"`
	Outcome    string `json:"outcome"`
	Meaning    string `json:"meaning"`
	Status     *int   `json:"status"`
	DurationMS int64  `json:"duration_ms"`
	Answer     string `json:"answer"`
}

// NewTest returns the view of a test request's outcome.
func NewTest(r *sender.Result) Test {
	v := Test{
		Delivered: r.Delivered(), Outcome: string(r.Outcome), Meaning: r.Outcome.Text(), DurationMS: r.Duration.Milliseconds(), Answer: Printable(r.Body),
	}
	if r.Answered {
		v.Status = &r.Status
	}
	return v
}

func meaning(outcome string) string {
	if outcome == "stalled" {
		return "the worker went silent; whether the request arrived is not known"
	}
	return sender.Outcome(outcome).Text()
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func utc(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	u := t.UTC()
	return &u
}

func some(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func someInt(n int) *int {
	if n == 0 {
		return nil
	}
	return &n
}

// Printable is text for a terminal and a page: UTF-8, with marks for what is none, for
// control characters other than line breaks and tabs, and for what turns the direction
// of a line and so could make it read as another.
func Printable(b []byte) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 {
			return utf8.RuneError
		}
		return r
	}, string(b))
}

// RetriedRange is what became of a range of dead letters.
type RetriedRange struct {
	DryRun bool `json:"dry_run"`
	// Matched is how many there were at the beginning.
	Matched int64 `json:"matched" doc:"How many there were, before any was retried"`
	Retried int   `json:"retried"`
	// Skipped are those whose event is no longer kept, or that somebody else took.
	Skipped int `json:"skipped" doc:"Their event is no longer kept, or somebody else was quicker"`
	// NextCursor is where to go on, null at the end.
	NextCursor *string `json:"next_cursor" doc:"Where to go on; null at the end"`
}

// Enqueued is delivery.Enqueued.
type Enqueued struct {
	ID  string `json:"id"`
	Seq int64  `json:"seq" doc:"Its place in the order of all events"`
	// Duplicate says that it was written before, as the same event.
	Duplicate bool `json:"duplicate" doc:"It was written before, as the same event"`
}

// NewEnqueued returns the view of what became of an event.
func NewEnqueued(e delivery.Enqueued) Enqueued {
	return Enqueued{ID: e.ID, Seq: e.Seq, Duplicate: e.Duplicate}
}
