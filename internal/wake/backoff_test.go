package wake

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/matryer/is"
)

func TestBackoffKeepsConnectsRare(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	conn, err := pgx.ParseConfig("")
	is.NoErr(err)
	config, err := Config{Conn: conn}.withDefaults()
	is.NoErr(err)
	connects, spent := 1, time.Duration(0)
	for try := 0; ; try++ {
		pause := config.backoff(try)
		is.True(pause >= config.Backoff/2 && pause <= config.MaxBackoff)
		if spent += pause; spent > 10*time.Second {
			break
		}
		connects++
	}
	is.True(connects < 20)
	is.True(config.backoff(1_000_000) >= config.MaxBackoff/2) // no overflow
}

func TestLimiter(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	l := NewLimiter(200, 20)
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	allowed := func(tries int) (n int) {
		for range tries {
			if l.allowAt(now) {
				n++
			}
		}
		return n
	}
	is.Equal(allowed(1000), 20)
	now = now.Add(50 * time.Millisecond)
	is.Equal(allowed(1000), 10)
	now = now.Add(time.Hour)
	is.Equal(allowed(1000), 20) // a pause saves up one burst, no more
	is.Equal((*Limiter)(nil).Allow(), true)
	is.Equal(Allow(), true)
}
