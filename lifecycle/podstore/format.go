// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podstore

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/safeyaml"
	"github.com/seed81659283/nodeagent/lifecycle"
)

// The first line of the file is magic, the version of the format, when it was written, and a sum of all that follows
// and of that time. The version stands where all versions have it.
const (
	magic   = "nodeagent-pods version="
	version = "1"
)

// header returns the first line of a file with these lines after it.
func buildHeader(saved string, lines []byte) string {
	h := sha256.New()
	h.Write(lines)
	_, _ = io.WriteString(h, saved)
	return fmt.Sprintf("%s%s saved=%s sha256=%x\n", magic, version, saved, h.Sum(nil))
}

// line is a line of the file but the first.
type line struct {
	Source string      `json:"source"`
	Pod    *corev1.Pod `json:"pod"`
}

// encoded is the content of a file.
type encodedFile struct {
	data    []byte
	sum     [sha256.Size]byte // of the pods in it
	pods    int
	omitted []error // one for each pod that is not in it, as Load would not take it
}

// encode returns the content of a file with the pods of all sets, or, if they do not fit, with those that [choose] chooses. The sources are
// in the order of their importance.
func encodeSets(sets []lifecycle.PodSet, sources []string, now time.Time) (e encodedFile, err error) {
	e, costs, full, err := encodeChosen(sets, nil, now)
	if err == nil && full {
		e, _, _, err = encodeChosen(sets, choosePods(costs, sources), now)
	}
	return e, err
}

// encodeChosen returns the content of a file with the chosen pods, in the order of the sets. If chosen is nil these are all, as long as they
// fit: full reports that they do not. Costs are those of the pods that Load takes.
func encodeChosen(sets []lifecycle.PodSet, chosen map[*corev1.Pod]bool, now time.Time) (e encodedFile, costs []podCost, full bool, err error) {
	var lines bytes.Buffer
	enc := json.NewEncoder(&lines)
	enc.SetEscapeHTML(false)
	values := 0
	for _, set := range sets {
		for _, pod := range set.Pods {
			bare := *pod
			bare.ManagedFields = nil // who wrote which field is for the API server, and longer than the pod
			start := lines.Len()
			if err := enc.Encode(line{set.Source, &bare}); err != nil {
				return e, nil, false, fmt.Errorf("encode pod %s/%s: %w", pod.Namespace, pod.Name, err)
			}
			c := podCost{pod: pod, source: set.Source, bytes: lines.Len() - start}
			c.values, err = checkLine(lines.Bytes()[start:], maxValues)
			if err == nil {
				costs = append(costs, c)
			}
			if err == nil && (lines.Len() > maxLines || values+c.values > maxValues || chosen != nil && !chosen[pod]) {
				full = true
				err = fmt.Errorf("the pods take more than %d bytes or %d values", maxLines, maxValues)
			}
			if err != nil {
				lines.Truncate(start)
				e.omitted = append(e.omitted, fmt.Errorf("pod %s/%s is not stored: %w", pod.Namespace, pod.Name, err))
				continue
			}
			values += c.values
			e.pods++
		}
	}
	first := buildHeader(now.UTC().Format(time.RFC3339), lines.Bytes())
	e.data, e.sum = slices.Concat([]byte(first), lines.Bytes()), sha256.Sum256(lines.Bytes())
	return e, costs, full, nil
}

// decode returns what a file holds: all of it, or none and why. Of arbitrary bytes it accepts only what encode has
// written, as the sum covers every byte.
func decodeFile(data []byte) (sets []lifecycle.PodSet, sum [sha256.Size]byte, err error) {
	if len(data) == 0 {
		return nil, sum, errors.New("it is empty")
	}
	rest, ok := bytes.CutPrefix(data, []byte(magic))
	if !ok {
		return nil, sum, fmt.Errorf("it begins with %q, want %q", data[:min(len(data), 20)], magic)
	}
	first, lines, ok := bytes.Cut(rest, []byte("\n"))
	if !ok {
		return nil, sum, errors.New("the first line is cut off")
	}
	v, fields, _ := strings.Cut(string(first), " ")
	if v != version {
		return nil, sum, fmt.Errorf("it has the version %.20q, want %q", v, version)
	}
	saved, _, _ := strings.Cut(strings.TrimPrefix(fields, "saved="), " ")
	if want := buildHeader(saved, lines); want != magic+string(first)+"\n" {
		return nil, sum, errors.New("the checksum does not match")
	}
	sets, err = decodeLines(lines)
	return sets, sha256.Sum256(lines), err
}

func decodeLines(lines []byte) (sets []lifecycle.PodSet, err error) {
	number, left := 1, maxValues
	for text := range bytes.Lines(lines) {
		number++
		var l line
		values, err := checkLine(text, left)
		if err == nil {
			err = json.Unmarshal(text, &l)
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		left -= values
		if l.Pod == nil {
			return nil, fmt.Errorf("line %d: pod: it is missing", number)
		}
		i := slices.IndexFunc(sets, func(set lifecycle.PodSet) bool { return set.Source == l.Source })
		if i < 0 {
			i = len(sets)
			sets = append(sets, lifecycle.PodSet{Source: l.Source, Incomplete: true})
		}
		sets[i].Pods = append(sets[i].Pods, l.Pod)
	}
	return sets, nil
}

// check returns an error for a line that costs more to decode than it may, or that has more than is left of the values
// of the file, and how many values it has. The sum of a file is none that only an agent can write.
func checkLine(text []byte, left int) (values int, err error) {
	b := safeyaml.NewBudget(len(text))
	if err := b.JSON(text); err != nil {
		return 0, err
	}
	if b.Spent() > left {
		return 0, fmt.Errorf("more than %d values in the file", maxValues)
	}
	return b.Spent(), safeyaml.Quantities(text, reflect.TypeFor[line]())
}
