// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package nodelogs serves the log files of a machine and answers queries about its services, as the kubelet does under /logs/. It writes
// no logs, and decides nothing about who may read them.
//
// # Model
//
// A [Handler] serves a directory, and with Options.Query also what a query asks for: a file, or services, whose logs are in the journal or
// in files that are named after them:
//
//	h, err := nodelogs.New(nodelogs.Options{Query: true})
//	server, err := nodeapi.New(nodeapi.Options{NodeLogs: h, …})
//
// [Parse], [Query.Validate] and [Query.JournalArguments] are pure, but for what Validate is told about files.
//
// # Links
//
// No name leads out of the directory, whatever is a link on the way and whoever swaps it meanwhile: files are opened by an [os.Root].
// Links within the directory are followed, also absolute ones, such as those that a kubelet makes in /var/log/containers. What is neither
// a regular file nor a directory is refused, so that a pipe stops nobody.
//
// # Concurrency
//
// A Handler may be called from many goroutines. It starts journalctl, at most Options.MaxRuns of them at a time, and waits for their end.
//
// # Errors
//
// A query that cannot be read gets 400, one that is invalid 406, with the kubelet's words. What goes wrong later is a line of the answer. A
// link that leads out is 403.
//
// # Differs from the kubelet
//
// The model is kubelet_server_journal.go in pkg/kubelet of Kubernetes 1.37. A user has to know:
//
//   - Links that lead out of the directory are refused; Options.FollowLinks is the kubelet's way.
//   - The times of a query count in their own time zone; the kubelet drops it.
//   - A file of a query may begin with a slash.
//   - The output of the journal is cut at Options.MaxOutput.
//
// All others are in DIFFERENCES.md.
//
// # When not to use it
//
// For the logs of containers: package logs reads those.
//
// Test kit: tests make a directory, and a program that they name in Options.Journal.
package nodelogs
