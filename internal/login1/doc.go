// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package login1 asks systemd-logind to wait with a shutdown, and hears when one begins. It shuts down nothing.
//
// A [Conn] is one connection to the message bus of the system, made by [Dial]. An inhibitor of it is a file descriptor, which logind
// looks at: a shutdown waits until it is closed, or until logind's InhibitDelayMaxSec is over. [Override] and [Conn.Reload] make that
// longer.
//
//	conn, err := login1.Dial(ctx, login1.Options{})
//	lock, err := conn.Inhibit(ctx, "kubelet", "pods have to be stopped")
//	err = conn.Watch(ctx, func(shutdown bool) { ... })
//
// What logind says about a shutdown is read from it, not taken from signals: anybody may send those.
//
// Methods may be called from any goroutine, and end with their context. Where there is no D-Bus, Dial returns an error
// that wraps errors.ErrUnsupported.
//
// Test kit: package login1test.
package login1
