package eventschema

// Kept returns how many JSON values the schemas that c keeps have.
func Kept(c *Cache) int {
	n := 0
	for _, kept := range c.kept {
		n += kept.size
	}
	return n
}
