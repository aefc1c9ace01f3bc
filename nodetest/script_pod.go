// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodetest

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// addPod executes the script command pod: it adds the pod named by args[0]. If that name contains a range of numbers, it
// adds a pod for each number.
func (p *player) addPod(args []string) error {
	names, err := expandName(strings.Join(args[:min(1, len(args))], ""))
	if err != nil {
		return err
	}
	for _, name := range names {
		pod, err := parsePod(name, args[1:])
		if err != nil {
			return err
		}
		if err := p.node.Add(pod); err != nil {
			return err
		}
	}
	return nil
}

// nameRange matches a range of numbers in the name of a pod.
var nameRange = regexp.MustCompile(`\{([0-9]{1,6})\.\.([0-9]{1,6})\}`)

// maxNameRange limits the pods of one command.
const maxNameRange = 1000

// expandName returns one pod name for each number in the range that name contains. If name contains no range, it returns
// only name.
func expandName(name string) (names []string, err error) {
	if name == "" {
		return nil, errors.New("pod NAME [SETTINGS] [uses FIELDS]")
	}
	found := nameRange.FindStringSubmatchIndex(name)
	if found == nil {
		return []string{name}, nil
	}
	from, _ := strconv.Atoi(name[found[2]:found[3]]) // digits only
	to, _ := strconv.Atoi(name[found[4]:found[5]])
	if to < from || to-from >= maxNameRange {
		return nil, fmt.Errorf("pod %s: a range of %d numbers, not between 1 and %d", name, to-from+1, maxNameRange)
	}
	for i := from; i <= to; i++ {
		names = append(names, name[:found[0]]+strconv.Itoa(i)+name[found[1]:])
	}
	return names, nil
}

// parsePod returns the pod that args describe: settings of the form KEY=VALUE and, after the word "uses", the value of
// [AnnotationUsage].
func parsePod(name string, args []string) (*corev1.Pod, error) {
	var r Resources
	var usage string
	settings := map[string]func(text string, pod *corev1.Pod) error{}
	list := map[string]string{}
	for i, arg := range args {
		if arg == "uses" {
			usage = strings.Join(args[i+1:], " ")
			break
		}
		key, value, _ := strings.Cut(arg, "=")
		list[key] = value
	}
	for _, quantity := range []struct {
		key string
		to  *string
	}{{"cpu", &r.CPU}, {"memory", &r.Memory}, {"limits.cpu", &r.CPULimit}, {"limits.memory", &r.MemoryLimit}} {
		if value, ok := list[quantity.key]; ok {
			if _, err := parseAmount(value); err != nil {
				return nil, fmt.Errorf("pod %s: %s: %w", name, quantity.key, err)
			}
			*quantity.to = value
			delete(list, quantity.key)
		}
	}
	settings["priority"] = func(text string, pod *corev1.Pod) error {
		amount, err := parseAmount(text)
		pod.Spec.Priority = new(int32(amount))
		return err
	}
	settings["grace"] = func(text string, pod *corev1.Pod) error {
		d, err := parseDuration(text)
		pod.Spec.TerminationGracePeriodSeconds = new(int64(d / time.Second))
		return err
	}
	settings["restart"] = func(text string, pod *corev1.Pod) error {
		pod.Spec.RestartPolicy = corev1.RestartPolicy(text)
		return nil
	}
	if _, err := ParseBehavior(usage, 0); err != nil {
		return nil, fmt.Errorf("pod %s: %w", name, err)
	}
	pod := NewPod(name, r, usage)
	for _, key := range slices.Sorted(maps.Keys(list)) {
		value, set := list[key], settings[key]
		if set == nil {
			return nil, fmt.Errorf("pod %s: no setting %q", name, key)
		}
		if err := set(value, pod); err != nil {
			return nil, fmt.Errorf("pod %s: %s: %w", name, key, err)
		}
	}
	return pod, nil
}
