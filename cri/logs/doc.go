// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package logs reads, follows and rotates the log files that a container runtime writes. It does not write or ship logs, and does
// not determine which containers run.
//
//	err := logs.Read(ctx, container.LogPath, stdout, stderr, logs.ReadOptions{
//		Follow:  true,
//		Running: func(ctx context.Context) (bool, error) { … },
//	})
//
//	r, err := logs.NewRotator(runtime, logs.RotatorOptions{})
//	r.SetLogs(running) // and again after each change
//	err = r.Run(ctx)
//
// # Model
//
// A log consists of the file 0.log, to which the runtime appends, and of the files 0.log.20260102-150405 that were rotated from
// it, some of them compressed to .gz. [ListFiles] returns them. [DetectFormat] returns the [Format] of a line, which parses it.
// [Read] writes a log as the container wrote it, and can follow it.
//
// [Policy.Plan] decides which steps a rotation takes, without side effects. A [Rotator] executes them for the logs of all running
// containers. A second rotation within a second, or after the clock was set back, adds a number to the newest existing name:
// 0.log.20260102-150405_001. Names are therefore always in order of time.
//
// # The size of a log
//
// The files of a log never exceed [Policy.MaxBytes] (MaxFiles times MaxSize plus an eighth of MaxSize) by more than the output
// during two rotations. A rotation lasts from the moment the file reaches MaxSize until the runtime writes to a new file: up to
// 10 ms plus the call of the runtime, for a container that writes up to 128 MiB/s on a machine that is not overloaded.
//
// The rotator waits for inotify events on quiet logs, and checks growing logs before they can be full. It never waits for
// compression. Files of a container that fills a file in less than a second are not compressed until it slows down. If the budget
// would be exceeded, the oldest files are removed. A compression that does not fit into the budget waits for the next rotation.
// Without inotify a quiet log is checked every second. Output written while no agent runs is kept until the next rotation.
//
// # Lines
//
// TailLines counts entries of the file: a long line of a container has several. An unfinished line at the end is not counted: a
// read with TailLines omits it, a read of the whole log returns it. A follower returns it when it is complete or the container
// has exited.
//
// # Concurrency
//
// All functions may be called concurrently. Run of a [Rotator] owns all its goroutines, two per log, and returns when they have
// exited. SetLogs may be called from any goroutine. A follower of a rotated log reads the renamed file to its end and continues
// with the later files in order, compressed or not. It misses files that are removed before it reads them.
//
// # Errors
//
// Lines that cannot be parsed are skipped and passed to [ReadOptions].LineSkipped. A failed rotation is passed to
// [Hooks].RotationFailed and retried with back-off from 100 ms to 10 s, without delaying other logs. If the runtime cannot reopen
// a log, the rename is undone.
//
// # Differs from the kubelet
//
// The model is pkg/kubelet/logs of Kubernetes 1.37 and pkg/logs of k8s.io/cri-client. DIFFERENCES.md lists all differences.
// Without [ReadOptions].IncludeRotated, TailLines and Since are limited to the current file, as in the kubelet. Lines of unknown
// format and lines over 16 MiB are skipped. Files whose names are not those of the rotator are neither counted nor removed. Read
// follows symbolic links, but they are not rotated.
//
// Test kit: package critest has a runtime in memory, which writes no log files; package process writes real ones.
package logs
