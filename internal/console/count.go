package console

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postlane-go/postlane/internal/dbgen"
)

const (
	// countGrace is how long after its end a minute is counted: an attempt carries the
	// time at which the transaction that recorded it began.
	countGrace = 10 * time.Second
	// countAtMost is how many attempts of a minute are read, more or less: of a minute
	// that had more, one in so many.
	countAtMost = 50_000
	countEvery  = 10 * time.Second
)

// Count keeps the statistics until ctx ends: minute by minute, in one transaction each,
// whichever server comes first. Errors are logged and tried again.
func (c *Console) Count(ctx context.Context) {
	every, forgotten := int64(1), time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		began := time.Now()
		c.summarize(ctx)
		read, more, err := c.countMinute(ctx, every)
		wait := countEvery
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			c.Logger.Warn("the console's statistics could not be brought up to date; trying again", "error", err)
		case more: // Behind: at most a tenth of one connection's time.
			every = sampling(read, every)
			wait = min(9*time.Since(began), countEvery)
		}
		if time.Since(forgotten) > 10*time.Minute {
			forgotten = time.Now()
			if err := queries.StatisticsForget(ctx, c.Pool); err != nil && ctx.Err() == nil {
				c.Logger.Warn("old statistics could not be removed; trying again", "error", err)
			}
		}
		timer.Reset(wait)
	}
}

// summarize keeps the index of times up to date. It is no misfortune if it cannot: where
// the role does not own the table, or autovacuum is at work on it, that does the same.
func (c *Console) summarize(ctx context.Context) {
	err := pgx.BeginFunc(ctx, c.Pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SET LOCAL lock_timeout = '50ms'"); err != nil {
			return err
		}
		_, err := queries.StatisticsSummarize(ctx, tx)
		return err
	})
	if err != nil && ctx.Err() == nil {
		c.Logger.Debug("the index of attempts was left to autovacuum", "error", err)
	}
}

// sampling says which share of the next minute to read: one in so many.
func sampling(read, every int64) int64 {
	return max(1, (read*every+countAtMost-1)/countAtMost)
}

// countMinute counts the next minute that is over, one attempt in so many. It says how
// many it read, and whether there was a minute to count.
func (c *Console) countMinute(ctx context.Context, every int64) (read int64, counted bool, err error) {
	err = pgx.BeginTxFunc(ctx, c.Pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		if err := queries.StatisticsSettings(ctx, tx, 30_000); err != nil {
			return err
		}
		next, err := queries.StatisticsNext(ctx, tx, countGrace.Seconds())
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		read, err = queries.StatisticsCount(ctx, tx, &dbgen.StatisticsCountParams{At: next.At, Every: every, Bounds: bounds})
		counted = err == nil
		return err
	})
	if err != nil {
		return 0, false, fmt.Errorf("console: count: %w", err)
	}
	return read, counted, nil
}
