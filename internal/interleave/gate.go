package interleave

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	gateKey = 7_316_000 // of advisory locks, beside an actor's number
	ahead   = 20        // how many gates of each actor are shut
)

// Gate is a place in the middle of statements.
type Gate struct {
	Table, Event string
	// Row: before each row is written, that is after all was read and locked. Otherwise
	// before the statement reads anything, with its snapshot taken.
	Row bool
}

func (g Gate) name() string {
	if g.Row {
		return fmt.Sprintf("gate of a row's %s", g.Event)
	}
	return fmt.Sprintf("gate of %s", g.Event)
}

// InstallGates makes actors stop at gates too.
func InstallGates(ctx context.Context, pool *pgxpool.Pool, actors int, gates ...Gate) error {
	_, err := pool.Exec(ctx, fmt.Sprintf(`CREATE FUNCTION interleave_gate() RETURNS trigger LANGUAGE plpgsql AS $$
		DECLARE
			actor integer := nullif(current_setting('interleave.actor', true), ''); -- of others: null
			key bigint;
		BEGIN
			IF actor IS NOT NULL THEN
				key := %d + actor * 100000000::bigint + nextval('interleave_gate_' || actor);
				PERFORM pg_advisory_lock_shared(key);
				PERFORM pg_advisory_unlock_shared(key);
			END IF;
			IF TG_OP = 'DELETE' THEN RETURN OLD; END IF;
			RETURN NEW;
		END $$`, gateKey))
	if err != nil {
		return err
	}
	for n := 1; n <= actors; n++ {
		if _, err := pool.Exec(ctx, fmt.Sprintf("CREATE SEQUENCE interleave_gate_%d", n)); err != nil {
			return err
		}
	}
	for _, g := range gates {
		level := "STATEMENT"
		if g.Row {
			level = "ROW"
		}
		if _, err := pool.Exec(ctx, fmt.Sprintf(`CREATE TRIGGER "%s" BEFORE %s ON %s FOR EACH %s EXECUTE FUNCTION interleave_gate()`,
			g.name(), g.Event, g.Table, level)); err != nil {
			return err
		}
	}
	return nil
}

func keyOf(actor *Actor, gate int64) int64 { return gateKey + int64(actor.number)*100_000_000 + gate }

// shut shuts the gates that an actor reaches first.
func shut(ctx context.Context, observer *pgx.Conn, a *Actor) error {
	_, err := observer.Exec(ctx, "SELECT pg_advisory_lock($1::bigint + n) FROM generate_series(1, $2::bigint) n", keyOf(a, a.gates), ahead)
	return err
}

// open lets an actor through the gate at which it is.
func open(ctx context.Context, observer *pgx.Conn, a *Actor) error {
	a.gates++
	_, err := observer.Exec(ctx, "SELECT pg_advisory_lock($1::bigint), pg_advisory_unlock($2::bigint)", keyOf(a, a.gates+ahead), keyOf(a, a.gates))
	return err
}
