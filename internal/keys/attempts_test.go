package keys_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/matryer/is"

	"github.com/postlane-go/postlane/internal/keys"
	"github.com/postlane-go/postlane/internal/pgtest"
)

func TestAttempts(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	ctx := t.Context()
	store := keys.New(pgtest.New(t), "the operator's key of these tests")
	made, good, err := store.Create(ctx, "good", "acme", keys.Read)
	is.NoErr(err)
	a := keys.NewAttempts(store)
	limited := func(remote, text string) bool {
		t.Helper()
		_, err := a.Find(ctx, remote, text)
		many, ok := errors.AsType[*keys.TooManyError](err)
		is.True(!ok || many.Wait > 0)
		return ok
	}
	_, err = a.Find(ctx, "[2001:db8:0:1::1]:99", good)
	is.NoErr(err)
	for i := range keys.WrongKeys {
		is.True(!limited(fmt.Sprintf("[2001:db8:0:1::%x]:99", i), "wrong")) // one network
	}
	is.True(limited("[2001:db8:0:1::ffff]:99", "wrong"))
	is.True(limited("[2001:db8:0:1::ffff]:99", "the operator's key of these tests"))
	is.True(!limited("[2001:db8:0:2::1]:99", "the operator's key of these tests")) // another network
	is.True(!limited("[2001:db8:0:1::1]:99", good))                                // it was right before

	_, err = store.Revoke(ctx, made.ID)
	is.NoErr(err)
	_, err = a.Find(ctx, "[2001:db8:0:1::1]:99", good)
	is.True(errors.Is(err, keys.ErrUnknown))
	is.True(limited("[2001:db8:0:1::1]:99", good)) // once

	// From many places at once.
	for i := range 10 * keys.WrongKeys {
		limited(fmt.Sprintf("10.1.%d.1:99", i), "wrong")
	}
	is.True(limited("10.2.0.1:99", "wrong"))
}

func TestPlace(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	for remote, want := range map[string]string{
		"192.0.2.1:80": "192.0.2.1", "[::ffff:192.0.2.1]:80": "192.0.2.1", "[2001:db8:1:2:3::4%eth0]:80": "2001:db8:1:2::/64", "@": "@", "host:80": "host",
	} {
		is.Equal(keys.Place(remote), want)
	}
}
