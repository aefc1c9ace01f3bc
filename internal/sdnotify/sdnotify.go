// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package sdnotify tells systemd that a service is ready, and that it is still healthy. It does not check the health itself. The protocol is that of
// sd_notify(3) and sd_watchdog_enabled(3).
//
// Test kit: none is needed; the environment is an argument, and the socket of systemd is one of package net.
package sdnotify

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"time"
)

const (
	minWatchdog = time.Second // the kubelet refuses a shorter time, too
	sendTimeout = time.Second
	maxTries    = 2 // attempts to send one notification, as in the kubelet
)

// Notifier sends notifications to systemd. Create it with [New].
type Notifier struct {
	socket string        // empty: there is no systemd
	period time.Duration // between two notifications of the watchdog; zero: there is no watchdog
}

// New returns the Notifier for the environment of this process, whose ID is pid. getenv is os.Getenv. An error names the invalid variable.
func New(getenv func(string) string, pid int) (*Notifier, error) {
	n := &Notifier{socket: getenv("NOTIFY_SOCKET")}
	text := getenv("WATCHDOG_USEC")
	if text == "" {
		return n, nil
	}
	micros, err := strconv.ParseInt(text, 10, 64)
	watchdog := time.Duration(micros) * time.Microsecond
	if err != nil || watchdog <= minWatchdog || watchdog/time.Microsecond != time.Duration(micros) {
		return nil, fmt.Errorf("WATCHDOG_USEC: %q is no number of microseconds above %d", text, minWatchdog.Microseconds())
	}
	if owner := getenv("WATCHDOG_PID"); owner != "" { // the variables may be those of a parent process
		id, err := strconv.Atoi(owner)
		if err != nil || id <= 0 {
			return nil, fmt.Errorf("WATCHDOG_PID: %q is no process ID", owner)
		}
		if id != pid {
			return n, nil
		}
	}
	n.period = watchdog / 2
	return n, nil
}

// Run reports that the service is ready. With a watchdog it then reports twice per watchdog time that the service is healthy, unless healthy returns
// an error: systemd restarts a service without such reports. Run returns when ctx ends, or at once if there is nothing to report.
func (n *Notifier) Run(ctx context.Context, healthy func() error, log *slog.Logger) {
	if n.socket == "" {
		return
	}
	n.sendState(ctx, "READY=1", log)
	if n.period == 0 {
		return
	}
	ticker := time.NewTicker(n.period)
	defer ticker.Stop()
	for {
		if err := healthy(); err != nil {
			log.Error("do not notify the watchdog of systemd", "error", err)
		} else {
			n.sendState(ctx, "WATCHDOG=1", log)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// sendState sends a notification. A failed attempt is repeated, and the last error is logged.
func (n *Notifier) sendState(ctx context.Context, state string, log *slog.Logger) {
	var err error
	for range maxTries {
		if err = n.sendDatagram(ctx, state); err == nil || ctx.Err() != nil {
			return
		}
	}
	log.Error("notify systemd", "state", state, "error", err)
}

// sendDatagram sends one datagram. A full socket blocks it for at most sendTimeout.
func (n *Notifier) sendDatagram(ctx context.Context, state string) error {
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "unixgram", n.socket) // net knows abstract sockets, such as @systemd
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(sendTimeout)); err != nil {
		return err
	}
	_, err = conn.Write([]byte(state))
	return err
}
