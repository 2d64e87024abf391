package torture

import (
	"context"
	"fmt"
	"net/url"

	"github.com/jackc/pgx/v5"

	"github.com/postlane-go/postlane/internal/torture/journal"
)

// record writes down what the database knows at the end, by plain SQL.
func (r *run) record(ctx context.Context) error {
	conn, err := r.cluster.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	rows, _ := conn.Query(ctx, "SELECT id FROM torture.transactions")
	var tx string
	if _, err := pgx.ForEachRow(rows, []any{&tx}, func() error {
		return r.journal.Write(journal.Line{Commit: &journal.Commit{Tx: tx}})
	}); err != nil {
		return fmt.Errorf("what committed: %w", err)
	}
	rows, _ = conn.Query(ctx, `
		SELECT s.url, d.event_id, CASE WHEN d.held_at IS NULL THEN 'pending' ELSE 'dead' END
		FROM postlane.deliveries d JOIN postlane.subscriptions s ON s.id = d.subscription_id
		UNION ALL
		SELECT s.url, d.event_id, d.state
		FROM postlane.settled d JOIN postlane.subscriptions s ON s.id = d.subscription_id`)
	var at string
	var state journal.State
	if _, err := pgx.ForEachRow(rows, []any{&at, &state.Event, &state.State}, func() error {
		u, err := url.Parse(at)
		if err != nil {
			return err
		}
		state.Path = u.Path
		return r.journal.Write(journal.Line{State: &state})
	}); err != nil {
		return fmt.Errorf("what became of deliveries: %w", err)
	}
	return nil
}
