// Package keys holds who may call the HTTP API. A key is shown once, when it is made;
// what is stored is its hash, its first characters and what it may do.
package keys

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/internal/dbgen"
)

// Scope says what a key may do.
type Scope string

const (
	Read  Scope = "read"  // look at everything that is its tenant's
	Write Scope = "write" // change it too
)

var (
	// ErrUnknown means that a text is no key, or of a revoked one.
	ErrUnknown = errors.New("keys: not a key, or a revoked one")
	// ErrNotFound means that there is no key of this id.
	ErrNotFound = errors.New("keys: there is no such key")
	// ErrInvalid is matched by errors about what a key was asked to be.
	ErrInvalid = errors.New("keys: invalid")
)

// Key is what is known of a key, without its text.
type Key struct {
	ID string
	// Hint is how its text begins.
	Hint string
	Name string
	// Tenant is whose it is; "" for an operator's.
	Tenant   string
	Scope    Scope
	Created  time.Time
	LastUsed *time.Time
	Revoked  *time.Time
}

// Caller is who makes a request.
type Caller struct {
	// ID is the key's, or "operator" for the one of the environment.
	ID     string
	Name   string
	Tenant string // "" for an operator
	Scope  Scope
}

// Operator reports whether the caller sees all tenants.
func (c *Caller) Operator() bool { return c.Tenant == "" }

// Label names the caller for people who look at what was done.
func (c *Caller) Label() string {
	if c.Name == c.ID {
		return c.ID
	}
	return c.Name + " (" + c.ID + ")"
}

// Store keeps the keys. It is safe for concurrent use.
type Store struct {
	pool     *pgxpool.Pool
	operator *[sha256.Size]byte
}

// New returns the store of a database. operatorKey, if it is not "", is the text of one
// more key, of an operator and for everything.
func New(pool *pgxpool.Pool, operatorKey string) *Store {
	s := &Store{pool: pool}
	if operatorKey != "" {
		sum := sha256.Sum256([]byte(operatorKey))
		s.operator = &sum
	}
	return s
}

var queries = dbgen.New()

// Create makes a key and returns it with its text, which nothing returns again.
func (s *Store) Create(ctx context.Context, name, tenant string, scope Scope) (Key, string, error) {
	switch {
	case name == "" || len(name) > 200 || !isText(name):
		return Key{}, "", fmt.Errorf("%w: name is not 1 to 200 bytes of UTF-8; say who or what will use it", ErrInvalid)
	case len(tenant) > delivery.MaxTenant || !isText(tenant):
		return Key{}, "", fmt.Errorf("%w: tenant is not UTF-8 of at most %d bytes", ErrInvalid, delivery.MaxTenant)
	case scope != Read && scope != Write:
		return Key{}, "", fmt.Errorf("%w: scope %q is neither read nor write", ErrInvalid, scope)
	}
	text := newText()
	sum := sha256.Sum256([]byte(text))
	arg := &dbgen.KeyCreateParams{ID: newID(), Hash: sum[:], Hint: text[:len(prefix)+4], Name: name, Scope: string(scope)}
	if tenant != "" {
		arg.Tenant = &tenant
	}
	row, err := queries.KeyCreate(ctx, s.pool, arg)
	if err != nil {
		return Key{}, "", fmt.Errorf("keys: create: %w", err)
	}
	return newKey(row), text, nil
}

// List returns up to max keys of a tenant ("": of all), in the order of their ids, after
// the given one ("": from the first). Revoked ones are among them.
func (s *Store) List(ctx context.Context, tenant, after string, max int) ([]Key, error) {
	from := int64(0)
	if after != "" {
		var err error
		if from, err = parseID(after); err != nil {
			return nil, err
		}
	}
	rows, err := queries.KeyList(ctx, s.pool, &dbgen.KeyListParams{Tenant: tenant, After: from, Max: int32(max)})
	if err != nil {
		return nil, fmt.Errorf("keys: list: %w", err)
	}
	list := make([]Key, len(rows))
	for i, r := range rows {
		list[i] = newKey(r)
	}
	return list, nil
}

// Has reports whether there is a key of an id, revoked or not.
func (s *Store) Has(ctx context.Context, id string) (bool, error) {
	n, err := parseID(id)
	if err != nil {
		return false, nil //nolint:nilerr // no key has such an id
	}
	rows, err := queries.KeyList(ctx, s.pool, &dbgen.KeyListParams{After: n - 1, Max: 1})
	if err != nil {
		return false, fmt.Errorf("keys: find: %w", err)
	}
	return len(rows) == 1 && rows[0].ID == n, nil
}

// Revoke ends a key. When it returns no request with it begins any more, on any server.
func (s *Store) Revoke(ctx context.Context, id string) (Key, error) {
	n, err := parseID(id)
	if err != nil {
		return Key{}, err
	}
	row, err := queries.KeyRevoke(ctx, s.pool, n)
	if errors.Is(err, pgx.ErrNoRows) {
		return Key{}, ErrNotFound
	}
	if err != nil {
		return Key{}, fmt.Errorf("keys: revoke: %w", err)
	}
	return newKey(row), nil
}

// Find returns whose key a text is, or ErrUnknown. It asks the database every time, so
// that a revocation holds at once; what is plainly no key never gets there.
func (s *Store) Find(ctx context.Context, text string) (*Caller, error) {
	sum := sha256.Sum256([]byte(text))
	if s.operator != nil && subtle.ConstantTimeCompare(sum[:], s.operator[:]) == 1 {
		return &Caller{ID: operatorID, Name: operatorID, Scope: Write}, nil
	}
	if !wellFormed(text) {
		return nil, ErrUnknown
	}
	row, err := queries.KeyFind(ctx, s.pool, sum[:])
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, ErrUnknown
	}
	if err != nil {
		return nil, fmt.Errorf("keys: find: %w", err)
	}
	if row.Stale {
		if err := queries.KeyTouch(ctx, s.pool, row.ID); err != nil {
			return nil, fmt.Errorf("keys: note the use: %w", err)
		}
	}
	c := &Caller{ID: idPrefix + strconv.FormatInt(row.ID, 10), Name: row.Name, Scope: Scope(row.Scope)}
	if row.Tenant != nil {
		c.Tenant = *row.Tenant
	}
	return c, nil
}

// has reports whether there is a key of a hash that is not revoked.
func (s *Store) has(ctx context.Context, hash []byte) (bool, error) {
	_, err := queries.KeyFind(ctx, s.pool, hash)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

const (
	prefix   = "plk_"
	idPrefix = "key_"
	// operatorID is the caller's of the environment's key.
	operatorID = "operator"
)

// newText returns the text of a new key: 260 random bits, and a checksum by which a
// scanner, or a mistyped request, is told apart without asking anybody.
func newText() string {
	text := prefix + rand.Text() + rand.Text()
	return text + checksum(text)
}

func checksum(text string) string { return fmt.Sprintf("%08X", crc32.ChecksumIEEE([]byte(text))) }

func wellFormed(text string) bool {
	const sum = 8
	return strings.HasPrefix(text, prefix) && len(text) > len(prefix)+sum && len(text) < 100 &&
		checksum(text[:len(text)-sum]) == text[len(text)-sum:]
}

func newID() int64 {
	var b [8]byte
	for {
		rand.Read(b[:]) // never fails: crypto/rand ends the process instead
		if id := int64(binary.BigEndian.Uint64(b[:]) >> 1); id > 0 {
			return id
		}
	}
}

func parseID(text string) (int64, error) {
	digits, ok := strings.CutPrefix(text, idPrefix)
	n, err := strconv.ParseInt(digits, 10, 64)
	if !ok || err != nil || n < 1 || strconv.FormatInt(n, 10) != digits {
		return 0, ErrNotFound
	}
	return n, nil
}

func newKey(r *dbgen.PostlaneApiKeys) Key {
	k := Key{
		ID: idPrefix + strconv.FormatInt(r.ID, 10), Hint: r.Hint, Name: r.Name, Scope: Scope(r.Scope), Created: r.CreatedAt,
		LastUsed: r.LastUsedAt, Revoked: r.RevokedAt,
	}
	if r.Tenant != nil {
		k.Tenant = *r.Tenant
	}
	return k
}

func isText(s string) bool { return utf8.ValidString(s) && !strings.Contains(s, "\x00") }
