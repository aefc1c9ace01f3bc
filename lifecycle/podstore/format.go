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

// The first line of the file consists of magic, the format version, the time of the write, and the checksum of that time and all
// other lines. All versions start with magic and the version.
const (
	magic   = "nodeagent-pods version="
	version = "1"
)

// buildHeader returns the first line of a pod file: its RFC 3339 time and a checksum of this time and all other lines.
func buildHeader(saved string, lines []byte) string {
	h := sha256.New()
	h.Write(lines)
	_, _ = io.WriteString(h, saved)
	return fmt.Sprintf("%s%s saved=%s sha256=%x\n", magic, version, saved, h.Sum(nil))
}

// line is a line of the file with one pod. The first line of the file is the header.
type line struct {
	Source string      `json:"source"`
	Pod    *corev1.Pod `json:"pod"`
}

// encodedFile is the content of a file, ready to be written.
type encodedFile struct {
	data    []byte
	sum     [sha256.Size]byte // checksum of the lines after the header
	pods    int               // number of pods in data
	omitted []error           // an error for each pod that is not in data, because it exceeds a limit
}

// encodeSets returns the content of a file with the pods of all sets, or with those of [choosePods] if they exceed its limits.
func encodeSets(sets []lifecycle.PodSet, sources []string, now time.Time) (file encodedFile, err error) {
	file, costs, full, err := encodeChosen(sets, nil, now)
	if err == nil && full {
		file, _, _, err = encodeChosen(sets, choosePods(costs, sources), now)
	}
	return file, err
}

// encodeChosen returns the content of a file with the chosen pods. If chosen is nil, it contains all pods that fit, and full
// reports whether a pod was omitted.
func encodeChosen(sets []lifecycle.PodSet, chosen map[*corev1.Pod]bool, now time.Time) (file encodedFile, costs []podCost, full bool, err error) {
	var lines bytes.Buffer
	enc := json.NewEncoder(&lines)
	enc.SetEscapeHTML(false)
	values := 0
	for _, set := range sets {
		for _, pod := range set.Pods {
			bare := *pod
			bare.ManagedFields = nil // managedFields serve the API server only, and are longer than the pod
			start := lines.Len()
			if err := enc.Encode(line{set.Source, &bare}); err != nil {
				return file, nil, false, fmt.Errorf("encode pod %s/%s: %w", pod.Namespace, pod.Name, err)
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
				file.omitted = append(file.omitted, fmt.Errorf("pod %s/%s is not stored: %w", pod.Namespace, pod.Name, err))
				continue
			}
			values += c.values
			file.pods++
		}
	}
	first := buildHeader(now.UTC().Format(time.RFC3339), lines.Bytes())
	file.data, file.sum = slices.Concat([]byte(first), lines.Bytes()), sha256.Sum256(lines.Bytes())
	return file, costs, full, nil
}

// decodeFile returns the pod sets in a file, and the checksum of its pods. It accepts only an unchanged file of encodeSets.
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

// decodeLines returns the pod sets in the lines that follow the header.
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

// checkLine returns the number of JSON values in a line of the file. More values than remaining are an error.
func checkLine(text []byte, remaining int) (values int, err error) {
	// Any program can compute the checksum of a file, so its content is checked too.
	b := safeyaml.NewBudget(len(text))
	if err := b.JSON(text); err != nil {
		return 0, err
	}
	if b.Spent() > remaining {
		return 0, fmt.Errorf("more than %d values in the file", maxValues)
	}
	return b.Spent(), safeyaml.Quantities(text, reflect.TypeFor[line]())
}
