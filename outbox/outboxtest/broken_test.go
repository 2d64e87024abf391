package outboxtest_test

import (
	"cmp"
	"context"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/matryer/is"

	"github.com/postlane-go/postlane/outbox"
	"github.com/postlane-go/postlane/outbox/outboxtest"
)

// breakage is a way of being wrong. A nil function is the store's own.
type breakage struct {
	caught        string                    // the case that must fail for it
	now           func(time.Time) time.Time // what it takes the time to be
	claim         func(b *broken, ctx context.Context, limit int) ([]outbox.Claim, error)
	write         func(b *broken, claims []outbox.Claim) []outbox.Claim // before each write
	markPublished func(b *broken, ctx context.Context, claims ...outbox.Claim) error
	renew         func(b *broken, ctx context.Context, claims ...outbox.Claim) error
	release       func(b *broken, ctx context.Context, claims ...outbox.Claim) error
	fail          func(b *broken, ctx context.Context, failures ...outbox.Failure) error
	rollback      func(tx pgx.Tx, ctx context.Context) error
}

// broken is a store that is wrong in one way.
type broken struct {
	outbox.Store
	breakage

	mu     sync.Mutex
	latest map[int64]int64 // the fence of the last claim of each message, by seq
}

func (b *broken) Claim(ctx context.Context, limit int) (claims []outbox.Claim, err error) {
	if b.claim != nil {
		claims, err = b.claim(b, ctx, limit)
	} else {
		claims, err = b.Store.Claim(ctx, limit)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range claims {
		b.latest[c.Seq] = c.Fence
	}
	return claims, err
}

func (b *broken) Stage(ctx context.Context, tx pgx.Tx, messages ...outbox.Message) ([]outbox.Staged, error) {
	if wrong, ok := tx.(*brokenTx); ok {
		tx = wrong.Tx
	}
	return b.Store.Stage(ctx, tx, messages...)
}

func (b *broken) written(claims []outbox.Claim) []outbox.Claim {
	if b.write == nil {
		return claims
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.write(b, slices.Clone(claims))
}

func (b *broken) MarkPublished(ctx context.Context, claims ...outbox.Claim) error {
	if b.markPublished != nil {
		return b.markPublished(b, ctx, claims...)
	}
	return b.Store.MarkPublished(ctx, b.written(claims)...)
}

func (b *broken) Renew(ctx context.Context, claims ...outbox.Claim) error {
	if b.renew != nil {
		return b.renew(b, ctx, claims...)
	}
	return b.Store.Renew(ctx, b.written(claims)...)
}

func (b *broken) Release(ctx context.Context, claims ...outbox.Claim) error {
	if b.release != nil {
		return b.release(b, ctx, claims...)
	}
	return b.Store.Release(ctx, b.written(claims)...)
}

func (b *broken) Fail(ctx context.Context, failures ...outbox.Failure) error {
	if b.fail != nil {
		return b.fail(b, ctx, failures...)
	}
	return b.Store.Fail(ctx, failures...)
}

// brokenTx is a transaction whose rollback is wrong.
type brokenTx struct {
	pgx.Tx
	rollback func(tx pgx.Tx, ctx context.Context) error
}

func (t *brokenTx) Rollback(ctx context.Context) error { return t.rollback(t.Tx, ctx) }

// breakages are named by what is wrong.
var breakages = map[string]breakage{
	"nothing at all": {},
	"a write ignores the fence": {
		caught: "StalledClaimantChangesNothing",
		write: func(b *broken, claims []outbox.Claim) []outbox.Claim {
			for i, c := range claims {
				claims[i].Fence = b.latest[c.Seq]
			}
			return claims
		},
	},
	"every claim has the same fence": {
		caught: "FenceRises",
		claim: func(b *broken, ctx context.Context, limit int) ([]outbox.Claim, error) {
			claims, err := b.Store.Claim(ctx, limit)
			for i := range claims {
				claims[i].Fence = 1
			}
			return claims, err
		},
	},
	"a claim answers with the last first": {
		caught: "OrderIsThatOfStaging",
		claim: func(b *broken, ctx context.Context, limit int) ([]outbox.Claim, error) {
			claims, err := b.Store.Claim(ctx, limit)
			slices.Reverse(claims)
			return claims, err
		},
	},
	"a claim answers in the order of ids": {
		caught: "OrderWithinATransactionIsExact",
		claim: func(b *broken, ctx context.Context, limit int) ([]outbox.Claim, error) {
			claims, err := b.Store.Claim(ctx, limit)
			slices.SortFunc(claims, func(x, y outbox.Claim) int { return cmp.Compare(x.ID, y.ID) })
			return claims, err
		},
	},
	"a claim remembers how far it has read": {
		caught: "BC12_LateCommitIsClaimed",
		claim: func(b *broken, ctx context.Context, limit int) ([]outbox.Claim, error) {
			claims, err := b.Store.Claim(ctx, limit)
			b.mu.Lock()
			defer b.mu.Unlock()
			return slices.DeleteFunc(claims, func(c outbox.Claim) bool {
				for seq := range b.latest {
					if seq > c.Seq {
						return true
					}
				}
				return false
			}), err
		},
	},
	"a claim exceeds its limit": {
		caught: "LimitIsKept",
		claim: func(b *broken, ctx context.Context, limit int) ([]outbox.Claim, error) {
			return b.Store.Claim(ctx, limit+1)
		},
	},
	"a lease never ends": {
		caught: "LeaseEnds",
		now:    func(time.Time) time.Time { return time.Unix(0, 0) },
	},
	"a lease ends early": {
		caught: "LeaseEnds",
		now:    func(now time.Time) time.Time { return time.UnixMilli(2 * now.UnixMilli()) },
	},
	"renewing does not move the end": {
		caught: "RenewedLeaseLasts",
		renew:  func(*broken, context.Context, ...outbox.Claim) error { return nil },
	},
	"a failure is not charged": {
		caught: "FailedHeadHoldsItsQueue",
		fail: func(b *broken, ctx context.Context, failures ...outbox.Failure) error {
			for _, f := range failures {
				if err := b.Store.Release(ctx, f.Claim); err != nil {
					return err
				}
			}
			return nil
		},
	},
	"a failure does not wait": {
		caught: "FailedHeadHoldsItsQueue",
		fail: func(b *broken, ctx context.Context, failures ...outbox.Failure) error {
			failures = slices.Clone(failures)
			for i := range failures {
				failures[i].Delay = 0
			}
			return b.Store.Fail(ctx, failures...)
		},
	},
	"a release is charged": {
		caught: "ReleaseChargesNothing",
		release: func(b *broken, ctx context.Context, claims ...outbox.Claim) error {
			for _, c := range claims {
				if err := b.Store.Fail(ctx, outbox.Failure{Claim: c}); err != nil {
					return err
				}
			}
			return nil
		},
	},
	"a published message stays": {
		caught: "ClaimsNeverOverlap",
		markPublished: func(b *broken, ctx context.Context, claims ...outbox.Claim) error {
			return b.Store.Release(ctx, claims...)
		},
	},
	"a rollback commits": {
		caught:   "BC13_RollbackForgets",
		rollback: func(tx pgx.Tx, ctx context.Context) error { return tx.Commit(ctx) },
	},
}

// The process of a breakage finds its name here.
const breakageOf = "POSTLANE_OUTBOXTEST_BREAKAGE"

var failedCase = regexp.MustCompile(`--- FAIL: TestSuiteOfABrokenStore/(\w+)`)

// The suite fails for a store that is wrong, and passes for the one that it was made
// of. A failing suite takes its test with it, hence a process for each.
func TestEveryBreakageIsCaught(t *testing.T) {
	t.Parallel()
	for name, breakage := range breakages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			command := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^TestSuiteOfABrokenStore$", "-test.timeout", "1m")
			command.Env = append(os.Environ(), breakageOf+"="+name)
			output, err := command.CombinedOutput()
			var caught []string
			for _, match := range failedCase.FindAllStringSubmatch(string(output), -1) {
				caught = append(caught, match[1])
			}
			slices.Sort(caught)
			if breakage.caught == "" {
				if err != nil {
					t.Errorf("the suite fails for a store that is right: %v\n%s", err, output)
				}
				return
			}
			t.Log("caught by", strings.Join(caught, ", "))
			if err == nil || !slices.Contains(caught, breakage.caught) {
				t.Errorf("%s does not catch it: %v\n%s", breakage.caught, err, output)
			}
		})
	}
}

func TestSuiteOfABrokenStore(t *testing.T) {
	t.Parallel()
	breakage, ok := breakages[os.Getenv(breakageOf)]
	if !ok {
		return // it is another process that runs this
	}
	outboxtest.Run(t, func(t *testing.T) outboxtest.Bed {
		var memory *outbox.Memory
		return outboxtest.Bed{
			Open: func(config outbox.StoreConfig) outbox.Store {
				if memory != nil {
					return nil
				}
				if now := config.Now; breakage.now != nil {
					config.Now = func() time.Time { return breakage.now(now()) }
				}
				var err error
				memory, err = outbox.NewMemory(config)
				is.New(t).NoErr(err)
				return &broken{Store: memory, breakage: breakage, latest: map[int64]int64{}}
			},
			Begin: func(ctx context.Context) (pgx.Tx, error) {
				tx, err := memory.Begin(ctx)
				if breakage.rollback != nil {
					tx = &brokenTx{tx, breakage.rollback}
				}
				return tx, err
			},
		}
	})
}
