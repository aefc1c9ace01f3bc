// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package logs reads and rotates the log files that a container runtime writes. It does not write them, does not ship
// them anywhere, and does not find out which containers run.
//
// # Model
//
// A log is the file 0.log, which the runtime appends to, and the files 0.log.20260102-150405 that were rotated from
// it, compressed to .gz or not. [ParseCRI] and [ParseDockerJSON] read one line. [Read] writes a log as the container
// wrote it, and may follow it:
//
//	err := logs.Read(ctx, container.LogPath, stdout, stderr, logs.ReadOptions{
//		Follow:  true,
//		Running: func(ctx context.Context) (bool, error) { … },
//	})
//
// [Policy.Plan] says what is to be done about the files of a log; a [Rotator] does it, for the logs of all running
// containers:
//
//	r, err := logs.NewRotator(runtime, logs.RotatorOptions{})
//	r.Set(running) // and again whenever that changes
//	err = r.Run(ctx)
//
// # The size of a log
//
// The files of a log together are never larger than [Policy.Budget], MaxFiles times MaxSize and an eighth of MaxSize,
// plus what the container writes within two reactions. A reaction begins when the file has reached MaxSize and ends
// when the runtime writes to a new one. That takes up to 10 ms and the call of the runtime for a writer of up to
// 128 MiB/s; longer where the machine is too busy to run the agent.
//
// The rotator waits for notices of the kernel on logs that are quiet, and looks at those that grow before they can be
// full. It never waits for a compression. When a container fills a file in less than a second, its files are not
// compressed until it slows down; where the files would be larger than the budget, the oldest are removed, all but
// the newest. A compression that has no room in the budget waits for the next rotation. Where the kernel gives no
// notices, a quiet log is looked at every second. What has grown while no agent ran is kept until the next rotation.
//
// The second rotation within a second, and any after the clock was set back, gets the newest name there is and a
// number: 0.log.20260102-150405_001. So the order of names is always the order of time.
//
// # Concurrency
//
// Functions may be called from many goroutines. Run of a [Rotator] owns all of its goroutines, two for each log, and
// returns when they have ended; Set may be called from anywhere. Logs can be rotated and followed at the same time: a
// follower reads a renamed file to its end and goes on in those that came after it, compressed or not, in their order.
// It loses what was removed before it got there.
//
// # Errors
//
// Lines that cannot be read are skipped and reported to [ReadOptions].Skipped. What goes wrong with one log is
// reported to [Hooks].Failed and tried again with back-off, from 100 ms to 10 s; other logs are not held up. When the
// runtime cannot reopen a log, the file gets its name back.
//
// # Differs from the kubelet
//
// The model is pkg/kubelet/logs of Kubernetes 1.37 and pkg/logs of k8s.io/cri-client.
//
//   - The kubelet looks at logs every 10 s, in which a writer of 100 MB/s makes 1 GB of its 10 MiB, and compresses
//     before it rotates (kubernetes/kubernetes#110630).
//   - Two rotations in one second do not overwrite each other, and a clock that was set back does not make the newest
//     file the oldest.
//   - Files with foreign names are neither counted nor removed; the kubelet takes all that begin with the name of the
//     log and a dot.
//   - A file that is there in spite of a failed call is not overwritten when the rotated one gets its name back.
//   - A follower reads the rest of a file that was renamed, and all files after it; the kubelet's drops the rest. It
//     shows an unfinished last line when the container has ended, as readers that do not follow do. It asks once a
//     second whether the container runs, not at each end of the file, and polls where the kernel refuses to give
//     notices, where the kubelet returns an error.
//   - A log is in the format of the first line that is in one, and an entry of an unknown stream is skipped; the
//     kubelet returns an error for a first line in no format and for such an entry.
//   - A line of more than 16 MiB is skipped.
//   - [ReadOptions].Rotated is an addition. Without it rotated files are not read, as in the kubelet: TailLines and
//     Since show no more than the current file has.
//
// # When not to use it
//
// To ship logs to a server: this package keeps no positions across restarts. Symbolic links are followed by Read, but
// not rotated.
package logs
