package outbox

import "context"

// Publisher hands messages to whatever carries them on: a broker, a job queue.
//
// Publish returns nil once the message is safe where it was handed to, so that it
// may be forgotten here. It may be called with the same message again (after a crash,
// or when the answer was lost), so the ID should go along for receivers to tell
// duplicates by. It is called from many goroutines, but for the messages of one queue
// from one at a time, in order. It returns soon after ctx ends.
//
// An error that no further attempt can mend is marked with Permanent.
type Publisher interface {
	Publish(ctx context.Context, m Message) error
}

// BatchPublisher is what a Publisher may be as well, if it is faster at several
// messages in one go.
//
// PublishBatch gets consecutive messages of one queue and returns how many of them,
// from the first on, are safe; err is what happened to the next one, nil if all
// are. A message behind a failed one must not be carried on, or order is lost.
type BatchPublisher interface {
	Publisher
	PublishBatch(ctx context.Context, messages []Message) (published int, err error)
}

// PublisherFunc is a function as a Publisher.
type PublisherFunc func(ctx context.Context, m Message) error

// Publish calls f.
func (f PublisherFunc) Publish(ctx context.Context, m Message) error { return f(ctx, m) }
