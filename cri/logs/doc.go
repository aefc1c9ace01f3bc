// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package logs reads and rotates the log files that a container runtime writes. It does not write them, does not ship them,
// and does not find out which containers run.
//
// # Model
//
// A log is the file 0.log, which the runtime appends to, and the files 0.log.20260102-150405 that were rotated from it,
// compressed to .gz or not; [ListFiles] returns them. [DetectFormat] returns the [Format] of a line, which parses it. [Read] writes a log as
// the container wrote it, and can follow it:
//
//	err := logs.Read(ctx, container.LogPath, stdout, stderr, logs.ReadOptions{
//		Follow:  true,
//		Running: func(ctx context.Context) (bool, error) { … },
//	})
//
// [Policy.Plan] is pure: it decides what to do about the files of a log. A [Rotator] does it, for the logs of all running
// containers:
//
//	r, err := logs.NewRotator(runtime, logs.RotatorOptions{})
//	r.SetLogs(running) // and again whenever that changes
//	err = r.Run(ctx)
//
// What belongs here: the formats of log files, reading, following, rotating. What does not: shipping logs, and deciding
// which containers have logs.
//
// # The size of a log
//
// The files of a log together are never larger than [Policy.MaxBytes], MaxFiles times MaxSize and an eighth of MaxSize, plus
// what the container writes within two reactions. A reaction begins when the file has reached MaxSize and ends when the
// runtime writes to a new one. That takes up to 10 ms and the call of the runtime for a writer of up to 128 MiB/s; longer
// where the machine is too busy to run the agent.
//
// The rotator waits for inotify events on logs that are quiet, and checks growing ones before they can be full. It never
// waits for a compression. When a container fills a file in less than a second, its files are not compressed until it slows
// down; where the files would be larger than the budget, the oldest are removed, all but the newest. A compression that has
// no room in the budget waits for the next rotation. Where inotify is not available, a quiet log is checked every second.
// What was written while no agent ran is kept until the next rotation.
//
// The second rotation within a second, and any after the clock was set back, gets the newest existing name and a number:
// 0.log.20260102-150405_001. So the order of names is always the order of time.
//
// # Lines
//
// TailLines counts entries of the file: a long line of a container takes several of them. An unfinished line at the end is
// not counted; it is left out, and a reader that follows gets it once it is complete.
//
// # Concurrency
//
// Functions may be called from many goroutines. Run of a [Rotator] owns all of its goroutines, two for each log, and
// returns when they have ended; Set may be called from any goroutine. A log can be rotated and followed at the same time: a
// follower reads a renamed file to its end and continues in the files after it, compressed or not, in their order. It does
// not see what was removed before it got there.
//
// # Errors
//
// Lines that cannot be parsed are skipped and reported to [ReadOptions].LineSkipped. An error of one log is reported to
// [Hooks].RotationFailed and the attempt repeated with back-off, from 100 ms to 10 s; other logs are not delayed. When the runtime
// cannot reopen a log, the file gets its name back.
//
// # Differs from the kubelet
//
// The model is pkg/kubelet/logs of Kubernetes 1.37 and pkg/logs of k8s.io/cri-client. A user has to know:
//
//   - The size of a log is bounded as described above. The kubelet checks every 10 s.
//   - Rotated files are read with [ReadOptions].IncludeRotated only; without it TailLines and Since are limited to the current
//     file, as in the kubelet.
//   - Lines in no known format are skipped; set [ReadOptions].LineSkipped to see them. The kubelet returns an error.
//   - A line of more than 16 MiB is skipped.
//   - Files that are not named as the rotator names them are neither counted nor removed.
//
// All others are in DIFFERENCES.md.
//
// # When not to use it
//
// To ship logs to a server: this package keeps no positions across restarts. Symbolic links are followed by Read, but not
// rotated.
//
// Test kit: package critest has a runtime in memory, which writes no log files; package process writes real ones.
package logs
