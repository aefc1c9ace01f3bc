// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/seed81659283/nodeagent/cri"
)

// The real-time signals as glibc numbers them; it reserves the first two.
const (
	sigRTMin = 34
	sigRTMax = 64
)

// Signal returns the number of the signal with this name, for example "SIGTERM" or "SIGRTMIN+3". The empty name means
// SIGTERM.
func Signal(signal cri.Signal) (unix.Signal, error) {
	if signal == "" {
		return unix.SIGTERM, nil
	}
	if n := unix.SignalNum(string(signal)); n != 0 {
		return n, nil
	}
	for _, base := range []struct {
		name string
		num  int
	}{{"SIGRTMIN", sigRTMin}, {"SIGRTMAX", sigRTMax}} {
		offset, ok := strings.CutPrefix(string(signal), base.name)
		if !ok {
			continue
		}
		n := 0
		if offset != "" {
			var err error
			if n, err = strconv.Atoi(offset); err != nil {
				break
			}
		}
		if n += base.num; n >= sigRTMin && n <= sigRTMax {
			return unix.Signal(n), nil
		}
	}
	return 0, fmt.Errorf("stop_signal %q: no such signal", signal)
}
