package delivery

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/postlane-go/postlane/delivery/sender"
)

// TestEventType is the event type of a test request.
const TestEventType = "postlane.test"

// SendTest sends one signed test request to a subscription's endpoint, past the queue,
// and returns what came of it. It runs whatever the subscription's state; nothing is
// stored, and no failure is counted.
func (s *Store) SendTest(ctx context.Context, snd Sender, id SubscriptionID) (sender.Result, error) {
	read, err := newTargets(s).read(ctx, []int64{int64(id)})
	if err != nil {
		return sender.Result{}, err
	}
	t := read[id]
	if t == nil {
		return sender.Result{}, fmt.Errorf("%w: no subscription %v", ErrNotFound, id)
	}
	if t.err != nil {
		return sender.Result{}, t.err
	}
	return snd.Send(ctx, sender.Request{
		URL: t.url, EventID: "test_" + uuid.NewString(), EventType: TestEventType, Attempt: 1,
		Body: []byte(`{"type":"` + TestEventType + `","data":{}}`), Secrets: t.secrets, Keys: t.keys, Header: t.header,
	}), nil
}
