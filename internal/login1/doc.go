// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package login1 takes shutdown inhibitors of systemd-logind over D-Bus, and watches for shutdowns. It does not shut down the machine.
//
// A [Conn] is a connection to the system message bus, created by [Dial]. An inhibitor is a file descriptor: a shutdown waits until it is
// closed, at most InhibitDelayMaxSec of logind. [WriteInhibitDelay] and [Conn.Reload] raise that limit.
//
//	conn, err := login1.Dial(ctx, login1.Options{})
//	if err != nil {
//		return err
//	}
//	defer conn.Close()
//	file, err := conn.Inhibit(ctx, "kubelet", "pods must be stopped")
//	if err != nil {
//		return err
//	}
//	defer file.Close()
//	return conn.Watch(ctx, func(shutdown bool) { ... })
//
// The state of a shutdown is read from a property of logind after each signal, because any program may send signals.
//
// Methods may be called from any goroutine, and return when their context ends. On systems other than Linux, Dial returns an error that wraps
// errors.ErrUnsupported.
//
// Test kit: package login1test.
package login1
