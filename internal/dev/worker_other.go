//go:build !linux

package dev

import "os/exec"

// dieWithParent does nothing: only Linux can tell a child of its parent's death.
func dieWithParent(*exec.Cmd) {}
