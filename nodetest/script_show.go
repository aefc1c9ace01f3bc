// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodetest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/nodetest/machine"
)

// injectFault executes the script command fault: it makes runtime calls fail, hang or be late.
func (p *player) injectFault(args []string) error {
	if len(args) < 2 {
		return errors.New("fault OP error|hang|DURATION [TIMES]")
	}
	f := Fault{Op: args[0]}
	switch args[1] {
	case "error":
		f.Err = errors.New("injected fault")
	case "hang":
		f.Hang = true
	default:
		var err error
		if f.Delay, err = parseDuration(args[1]); err != nil {
			return err
		}
	}
	if len(args) > 2 {
		var err error
		if f.Times, err = strconv.Atoi(args[2]); err != nil {
			return err
		}
	}
	p.repair = append(p.repair, p.node.Inject(f))
	return nil
}

func (p *player) repairAll([]string) error {
	for _, remove := range p.repair {
		remove()
	}
	p.repair = nil
	return nil
}

func (p *player) restartAgent(args []string) error {
	d, err := parseDuration(lastOf(args))
	return errors.Join(err, p.node.RestartAgent(d))
}

func (p *player) rebootNode(args []string) error {
	d, err := parseDuration(strings.Join(args, ""))
	return errors.Join(err, p.node.Reboot(d))
}

func (p *player) cutNetwork([]string) error { return p.node.CutNetwork(true) }

func (p *player) connectNetwork([]string) error { return p.node.CutNetwork(false) }

func (p *player) fillDisk(args []string) error {
	amount, err := parseAmount(lastOf(args))
	p.node.FillDisk(machine.NodeDisk, toBytes(amount))
	return err
}

// showTime formats a time in the log, rounded to tenths of a second. More digits would show the latency of calls.
func showTime(d time.Duration) string { return d.Round(100 * time.Millisecond).String() }

// showEntries prints one line per entry: its time and the result of format.
func (p *player) showEntries(list Log, format func(e Entry) string) error {
	for _, e := range list {
		p.printLine("%s %s", showTime(e.At), format(e))
	}
	return nil
}

// shortName returns the name of a pod without the prefix "default/".
func shortName(pod string) string { return strings.TrimPrefix(pod, corev1.NamespaceDefault+"/") }

// longName returns the name of a pod with the prefix "default/". For the arguments "" and "-", which stand for no pod, it
// returns "".
func longName(pod string) string {
	if pod == "" || pod == "-" {
		return ""
	}
	return corev1.NamespaceDefault + "/" + pod
}

func (p *player) showEvicted([]string) error {
	return p.showEntries(p.node.Log().Match("", KindEvent, "Evicted"), func(e Entry) string { return shortName(e.Pod) + ": " + e.Message })
}

func (p *player) showOOM([]string) error {
	return p.showEntries(p.node.Log().Match("", KindOOM, ""), func(e Entry) string {
		return fmt.Sprintf("%s %s: %s is full, %s", shortName(e.Pod), e.Container, e.Reason, e.Message)
	})
}

func (p *player) showConditions([]string) error {
	return p.showEntries(p.node.Log().Match("", KindCondition, ""), func(e Entry) string { return e.Reason })
}

func (p *player) showLog(args []string) error {
	args = append(args, "", "", "")
	return p.showEntries(p.node.Log().Match(longName(args[0]), args[1], args[2]), func(e Entry) string {
		text := fmt.Sprintf("%s %s: %s %s", shortName(e.Pod), e.Container, e.Kind, e.Reason)
		if e.Message != "" {
			text += ": " + e.Message
		}
		return strings.TrimSpace(strings.Replace(text, " :", ":", 1))
	})
}

func (p *player) showPhases(args []string) error {
	times := p.node.Log().Phases(longName(strings.Join(args, "")), p.node.Age())
	for _, phase := range slices.Sorted(maps.Keys(times)) {
		p.printLine("%s %s", phase, showTime(times[phase]))
	}
	return nil
}

func (p *player) showReady(args []string) error {
	p.printLine("not ready for %s", showTime(p.node.Log().NotReady(longName(strings.Join(args, "")), p.node.Age())))
	return nil
}

func (p *player) showCPU(args []string) error {
	s, err := p.node.Stats(strings.Join(args, ""))
	if err != nil {
		return err
	}
	text := "used " + showTime(time.Duration(s.CPU.Usage))
	if s.CPU.Throttled > 0 {
		text += fmt.Sprintf(", throttled in %d of %d periods for %s", s.CPU.Throttled, s.CPU.Periods, showTime(time.Duration(s.CPU.ThrottledTime)))
	}
	if s.CPU.Pressure != nil && s.CPU.Pressure.Some.Total > 0 {
		text += ", waited " + showTime(s.CPU.Pressure.Some.Total)
	}
	p.printLine("%s", text)
	return nil
}

func (p *player) showMemory(args []string) error {
	s, err := p.node.Stats(strings.Join(args, ""))
	if err == nil {
		p.printLine("working set %s", showBytes(workingSet(&s)))
	}
	return err
}

func (p *player) showNode([]string) error {
	m := p.node.Machine()
	s, err := m.Cgroups().Sample(p.ctx, "", "", cgroups.PartMemory|cgroups.PartCPU)
	if err == nil {
		p.printLine("%s of memory available, used %s of CPU", showBytes(m.Spec().Memory-workingSet(&s)), showTime(time.Duration(s.CPU.Usage)))
	}
	return err
}

// showBytes returns a number of bytes in MiB.
func showBytes(bytes int64) string { return fmt.Sprintf("%dMi", bytes>>20) }

// lastOf returns the last argument, or "" without any.
func lastOf(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return args[len(args)-1]
}
