package bench

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postlane-go/postlane/delivery/sender"
	"github.com/postlane-go/postlane/delivery/signing"
)

// raw sends the same signed POSTs with no database for a while, so many workers each one
// after another, and returns their rate and number.
func (r *run) raw(ctx context.Context, endpoint string, workers int, duration time.Duration) (rate float64, n int, err error) {
	secret, err := signing.Generate(0)
	if err != nil {
		return 0, 0, err
	}
	var sent, failed atomic.Int64
	var group sync.WaitGroup
	begin := time.Now()
	for w := range workers {
		group.Go(func() {
			request := sender.Request{
				URL: fmt.Sprintf("%s/%d", endpoint, w%throughputSubscriptions), EventType: "asset.updated", Asset: "asset-1", Attempt: 1, StreamSeq: 1,
				ContentType: "application/json", Body: body, Secrets: []signing.Secret{secret},
			}
			for i := 0; time.Since(begin) < duration && ctx.Err() == nil; i++ {
				request.EventID = fmt.Sprintf("evt_01a227dd-8762-7ded-be7b-%06d%06d", w, i)
				if result := r.sender.Send(ctx, request); result.Delivered() {
					sent.Add(1)
				} else {
					failed.Add(1)
				}
			}
		})
	}
	group.Wait()
	if failed.Load() > 0 {
		return 0, 0, fmt.Errorf("%d of %d plain requests failed", failed.Load(), sent.Load()+failed.Load())
	}
	return float64(sent.Load()) / time.Since(begin).Seconds(), int(sent.Load()), ctx.Err()
}
