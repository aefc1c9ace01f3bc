// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package login1

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/seed81659283/nodeagent/internal/atomicfile"
)

// Where the system has what this package talks to.
const (
	SystemSocket = "/run/dbus/system_bus_socket"
	ConfigDir    = "/etc/systemd/logind.conf.d"
)

// configFile is the kubelet's, so that there is one where both have been on a machine.
const configFile = "99-kubelet.conf"

// Options say how to reach logind. The zero value is for that of the system.
type Options struct {
	Socket  string        // of the message bus; empty means SystemSocket
	Timeout time.Duration // of each call; zero means 10 s
}

const defaultTimeout = 10 * time.Second

// Override writes the configuration that makes logind wait as long, in whole seconds, into a directory that is made where it is missing; empty
// means [ConfigDir]. It counts once logind has been reloaded.
func WriteInhibitDelay(dir string, wait time.Duration) error {
	if dir == "" {
		dir = ConfigDir
	}
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // all may read configuration
		return fmt.Errorf("override InhibitDelayMaxSec: %w", err)
	}
	text := fmt.Sprintf("# Of the node agent: how long pods may take to stop\n[Login]\nInhibitDelayMaxSec=%.0f\n", math.Ceil(wait.Seconds()))
	if err := atomicfile.WriteFile(filepath.Join(dir, configFile), []byte(text), 0o644); err != nil {
		return fmt.Errorf("override InhibitDelayMaxSec: %w", err)
	}
	return nil
}
