//go:build !linux

package torture

import "errors"

func mountDisk(string) error { return errors.ErrUnsupported }

func unmountDisk(string) {}
