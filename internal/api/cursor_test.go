package api

import "testing"

// FuzzCursor holds that a cursor is read as the position that it was made of, by its own
// list alone, and that nothing else is a cursor.
func FuzzCursor(f *testing.F) {
	c := cursors{[]byte("a key")}
	f.Add("deliveries\x00sub_1", "dlv_1", "deliveries\x00sub_2", "x")
	f.Add("a", "b\x00c", "a\x00b", "c")
	f.Add("ab", "c", "a", "bc")
	f.Add("", "p", "\x00", c.make("", "p"))
	f.Fuzz(func(t *testing.T, list, position, other, text string) {
		cursor := c.make(list, position)
		if got, err := c.read(list, cursor); position != "" && (err != nil || got != position) {
			t.Fatalf("%q of %q is read as %q, %v", position, list, got, err)
		}
		if got, err := c.read(other, cursor); other != list && err == nil {
			t.Fatalf("%q of %q is read as %q of %q", position, list, got, other)
		}
		// As long as the mark is the same, what it marks may not move between the two.
		if a, b := c.mac(list, position), c.mac(other, text); string(a) == string(b) && (list != other || position != text) {
			t.Fatalf("%q of %q and %q of %q have one mark", position, list, text, other)
		}
		if got, err := c.read(list, text); err == nil && text != "" && c.make(list, got) != text {
			t.Fatalf("%q is read as %q", text, got)
		}
	})
}
