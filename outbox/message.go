package outbox

import (
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
)

const (
	// DefaultQueue is the queue of a message that names none.
	DefaultQueue = "default"
	// DefaultMaxAttempts is how many attempts a message has that names no number.
	DefaultMaxAttempts = 20

	// MaxPayload is the largest payload, in bytes.
	MaxPayload = 16 << 20
	// MaxQueue is the longest queue, in bytes: it is part of index keys, which
	// PostgreSQL limits to a third of a page.
	MaxQueue = 512
	// MaxName is the longest id, topic, tenant, idempotency key and enqueued-by,
	// in bytes.
	MaxName = 512
	// MaxHeaders is how many bytes the headers of a message may have together.
	MaxHeaders = 64 << 10
)

// Message is what is to be published.
type Message struct {
	// ID is the message's identity, also for receivers, which tell duplicates by
	// it. A message whose ID is there already is not staged again.
	// Default: a new one ("msg_" and a UUIDv7, which sorts by time).
	ID string

	// Topic says what kind of message it is and, to most publishers, where it
	// goes; a job queue calls it the job's name. Required.
	Topic string

	// Queue is the ordering key: the messages of a queue are published in the
	// order in which they were staged, one after the other; different queues are
	// independent of each other. Default: DefaultQueue.
	Queue string

	// Payload is stored and published byte for byte. Up to MaxPayload bytes.
	Payload []byte

	// Headers go with the payload. Default: none.
	Headers map[string]string

	// IdempotencyKey makes staging repeatable: of the messages of a tenant with
	// the same key only the first is staged. A key is free again when its message
	// is pruned. Default: none.
	IdempotencyKey string

	// MaxAttempts is how often publishing is tried before the message counts as
	// one that cannot be published; what becomes of it then, the relay decides.
	// Default: DefaultMaxAttempts.
	MaxAttempts int

	// RunAt is the earliest time to publish, as the database's clock has it, in
	// microseconds. The message joins its queue at that time, in its place among
	// those that are waiting then; until then it holds up nobody.
	// Default: at once.
	RunAt time.Time

	// Tenant is whose message it is. Default: nobody's in particular.
	Tenant string

	// Traceparent is the W3C trace context to publish under. Default: that of the
	// span in the context of Stage; none where there is no valid one.
	Traceparent string

	// EnqueuedBy says who staged the message, for people who look at it later.
	// It decides nothing. Default: none.
	EnqueuedBy string

	// StagedAt is when the message was staged, as the store says. Staging
	// ignores it.
	StagedAt time.Time
}

// Staged tells what became of a message that was staged.
type Staged struct {
	// ID is the message's id, the generated one where none was given.
	ID string
	// Seq is its place in the order of all messages. 0 for a duplicate.
	Seq int64
	// Duplicate says that a message with this id, or with this idempotency key,
	// is there already, and nothing was staged.
	Duplicate bool
}

// normalize returns the message as it is stored: checked, with its defaults, and
// under the given trace context where it has none.
func (m Message) normalize(index int, traceparent string) (Message, error) {
	bad := func(field, format string, args ...any) (Message, error) {
		return Message{}, &InvalidError{Index: index, Field: field, Problem: fmt.Sprintf(format, args...)}
	}
	if m.Topic == "" {
		return bad("Topic", "is empty; say what kind of message it is")
	}
	for _, f := range []struct {
		name, value string
		max         int
	}{
		{"ID", m.ID, MaxName}, {"Topic", m.Topic, MaxName}, {"Queue", m.Queue, MaxQueue}, {"IdempotencyKey", m.IdempotencyKey, MaxName},
		{"Tenant", m.Tenant, MaxName}, {"Traceparent", m.Traceparent, MaxName}, {"EnqueuedBy", m.EnqueuedBy, MaxName},
	} {
		if len(f.value) > f.max {
			return bad(f.name, "is longer than %d bytes", f.max)
		}
		if !isText(f.value) {
			return bad(f.name, "is not UTF-8 without NUL")
		}
	}
	size := 0
	for key, value := range m.Headers {
		if key == "" || !isText(key) || !isText(value) {
			return bad("Headers", "has %q, whose name or value is not UTF-8 without NUL", key)
		}
		size += len(key) + len(value)
	}
	switch {
	case size > MaxHeaders:
		return bad("Headers", "has %d bytes, more than %d", size, MaxHeaders)
	case len(m.Payload) > MaxPayload:
		return bad("Payload", "has %d bytes, more than %d; stage a reference to it", len(m.Payload), MaxPayload)
	case m.MaxAttempts < 0 || m.MaxAttempts > math.MaxInt32:
		return bad("MaxAttempts", "is %d; give 1 or more, or 0 for %d", m.MaxAttempts, DefaultMaxAttempts)
	case !m.RunAt.IsZero() && (m.RunAt.Year() < 1970 || m.RunAt.Year() > 9999):
		return bad("RunAt", "is in the year %d; give one from 1970 to 9999", m.RunAt.Year())
	}
	if m.ID == "" {
		m.ID = "msg_" + uuid.Must(uuid.NewV7()).String()
	}
	if m.Queue == "" {
		m.Queue = DefaultQueue
	}
	if m.MaxAttempts == 0 {
		m.MaxAttempts = DefaultMaxAttempts
	}
	if m.Traceparent == "" {
		m.Traceparent = traceparent
	}
	return m, nil
}

// isText reports whether PostgreSQL can store s as text.
func isText(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }
