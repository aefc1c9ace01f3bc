// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package session connects the readers and writers of a [cri.Session] to the file descriptors of a command or container. It
// starts no commands and knows no containers: functions of the caller do.
//
// # Concurrency
//
// A call owns one goroutine per stream and one for terminal sizes. All have exited when it returns, with two exceptions: a
// goroutine in Read of Session.Stdin and, after the end of ctx, a goroutine that is in Write for more than a second.
package session
