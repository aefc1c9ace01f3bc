// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package static

import (
	"fmt"
	"strings"

	"github.com/seed81659283/nodeagent/hack/bench/internal/trace"
)

// metric is the name of a figure in samples.
type metric string

const (
	startSeconds       metric = "start_s"        // all containers running, from the start of the agent
	firstSeconds       metric = "first_s"        // first running container
	idleMillicores     metric = "idle_mcpu"      // CPU of the agent at rest
	runtimeMillicores  metric = "runtime_mcpu"   // CPU of the runtime at rest
	machineMillicores  metric = "machine_mcpu"   // CPU of the whole machine at rest
	residentBytes      metric = "rss_bytes"      // VmRSS
	proportionalBytes  metric = "pss_bytes"      // Pss
	anonymousBytes     metric = "anon_bytes"     // RssAnon
	replaceSeconds     metric = "replace_s"      // from SIGKILL to the start of the replacement
	createStartSeconds metric = "create_start_s" // bare CreateContainer and StartContainer
	goneSeconds        metric = "gone_s"         // no container runs
	stoppedSeconds     metric = "stopped_s"      // no sandbox is ready
	removedSeconds     metric = "removed_s"      // no sandbox exists
	binaryBytes        metric = "binary_bytes"
	harnessStarting    metric = "harness_start_mcpu" // CPU of the harness until all containers run
	harnessIdle        metric = "harness_idle_mcpu"  // CPU of the harness at rest
)

// floorName is the subject of bare CRI calls.
const floorName = "floor"

// sample is one measurement of one subject.
type sample struct {
	Subject  string `json:"subject"`
	Pods     int    `json:"pods"`
	Repeat   int    `json:"repeat"`
	Parallel int    `json:"parallel,omitempty"` // only for the floor

	Load   float64       `json:"load"`             // load average of the last minute before the measurement
	Phases []trace.Phase `json:"phases,omitempty"` // with -trace

	// Values has the values of each metric. A metric of kills has one value per kill.
	Values map[metric][]float64 `json:"values"`
	// Problems are the errors of the measurement. A measurement with problems may lack figures.
	Problems []string `json:"problems,omitempty"`
}

// add records a figure.
func (s *sample) add(m metric, value float64) {
	if s.Values == nil {
		s.Values = map[metric][]float64{}
	}
	s.Values[m] = append(s.Values[m], value)
}

// failed records err, unless it is nil. It cuts long errors: a hundred pods can fail for one reason.
func (s *sample) failed(err error) {
	const most = 20
	if err == nil {
		return
	}
	lines := strings.Split(err.Error(), "\n")
	if rest := len(lines) - most; rest > 0 {
		lines = append(lines[:most], fmt.Sprintf("and %d more lines", rest))
	}
	s.Problems = append(s.Problems, strings.Join(lines, "\n"))
}
