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

// Default paths of systemd.
const (
	SystemSocket = "/run/dbus/system_bus_socket"
	ConfigDir    = "/etc/systemd/logind.conf.d"
)

// configFile has the kubelet's file name, so that an agent replaces the file of a kubelet.
const configFile = "99-kubelet.conf"

// Options configures Dial. The zero value is for the logind of the system.
type Options struct {
	Socket  string        // path of the message bus; empty means SystemSocket
	Timeout time.Duration // limits each call; zero means 10 s
}

const defaultTimeout = 10 * time.Second

// WriteInhibitDelay writes a configuration file of logind into dir, which it creates if necessary. The file sets
// InhibitDelayMaxSec to wait, rounded up to whole seconds. If dir is empty, it writes into [ConfigDir]. logind uses the
// setting after [Conn.Reload].
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
