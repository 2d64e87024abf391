package client_test

import (
	"bytes"
	"encoding/json"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/matryer/is"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/delivery/sender"
	"github.com/postlane-go/postlane/internal/api"
)

// committed are the descriptions that are in the repository: to be read and compared in
// a review, and for generators.
var committed = map[string]string{
	"/openapi.json":     "../../../docs/openapi.json",
	"/openapi-3.0.json": "openapi-3.0.json",
}

// The descriptions in the repository are what is served, so a change of the API shows in
// a review as a change of its description. POSTLANE_UPDATE=1 writes them. (It is a
// package of its own so that it compiles while the client is behind.)
func TestDescriptionIsCommitted(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	pool, err := pgxpool.New(t.Context(), "postgres://nobody@127.0.0.1:1/nowhere") // never asked
	is.NoErr(err)
	defer pool.Close()
	store, err := delivery.NewStore(pool, delivery.StoreConfig{})
	is.NoErr(err)
	snd, err := sender.New(sender.Config{})
	is.NoErr(err)
	defer snd.Close()
	v1, err := api.New(api.Config{Pool: pool, Store: store, Sender: snd})
	is.NoErr(err)
	for path, file := range committed {
		w := httptest.NewRecorder()
		v1.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", path, nil))
		var served bytes.Buffer
		is.NoErr(json.Indent(&served, w.Body.Bytes(), "", "  "))
		served.WriteByte('\n')
		if os.Getenv("POSTLANE_UPDATE") != "" {
			is.NoErr(os.WriteFile(file, served.Bytes(), 0o644))
		}
		kept, err := os.ReadFile(file)
		is.NoErr(err)
		if !bytes.Equal(kept, served.Bytes()) {
			t.Errorf("%s is not what is served at %s; see the comment of this package", file, path)
		}
	}
}
