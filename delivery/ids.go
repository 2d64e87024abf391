package delivery

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
)

// SubscriptionID names a subscription. As text it is "sub_" and the decimal number
// of its row. It is random, so it neither counts subscriptions nor can be guessed.
type SubscriptionID int64

const subscriptionPrefix = "sub_"

// newSubscriptionID returns a random id, positive and never 0.
func newSubscriptionID() SubscriptionID {
	var b [8]byte
	for {
		rand.Read(b[:]) // never fails: crypto/rand ends the process instead
		if id := int64(binary.BigEndian.Uint64(b[:]) >> 1); id > 0 {
			return SubscriptionID(id)
		}
	}
}

// ParseSubscriptionID reads the text form of an id. Its error matches ErrNotFound:
// what is not an id names no subscription.
func ParseSubscriptionID(text string) (SubscriptionID, error) {
	n, err := parseID(subscriptionPrefix, text)
	if err != nil {
		return 0, fmt.Errorf("%w: %q is not a subscription id", ErrNotFound, text)
	}
	return SubscriptionID(n), nil
}

func (id SubscriptionID) String() string {
	return subscriptionPrefix + strconv.FormatInt(int64(id), 10)
}

// MarshalText returns the text form.
func (id SubscriptionID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText reads the text form.
func (id *SubscriptionID) UnmarshalText(text []byte) (err error) {
	*id, err = ParseSubscriptionID(string(text))
	return err
}

// ID names a delivery within its subscription. As text it is "dlv_" and the number
// of its event in the sequence, which is also its place in its stream.
type ID int64

const idPrefix = "dlv_"

// ParseID reads the text form of an id. Its error matches ErrNotFound.
func ParseID(text string) (ID, error) {
	n, err := parseID(idPrefix, text)
	if err != nil {
		return 0, fmt.Errorf("%w: %q is not a delivery id", ErrNotFound, text)
	}
	return ID(n), nil
}

func (id ID) String() string { return idPrefix + strconv.FormatInt(int64(id), 10) }

// MarshalText returns the text form.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText reads the text form.
func (id *ID) UnmarshalText(text []byte) (err error) {
	*id, err = ParseID(string(text))
	return err
}

func parseID(prefix, text string) (int64, error) {
	digits, ok := strings.CutPrefix(text, prefix)
	if !ok {
		return 0, strconv.ErrSyntax
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < 1 || strconv.FormatInt(n, 10) != digits {
		return 0, strconv.ErrSyntax
	}
	return n, nil
}
