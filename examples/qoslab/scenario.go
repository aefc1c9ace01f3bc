// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/seed81659283/nodeagent/internal/scriptlines"
)

// Bounds of a scenario.
const (
	maxFileSize = 1 << 20 // bytes
	maxPods     = 200
	maxDuration = 7 * 24 * time.Hour
)

//go:embed scenarios/*.txt
var shipped embed.FS

// scenario is a script in the language of nodetest.PlayScript, with a head of comments. The first comment is the title, further comments are the
// description. The comments "# policies: A, B" and "# sweep: NAME=FROM..TO" are defaults of the flags with these names. In a sweep the script may
// have variables: $NAME has the value of a run, and $run its number.
type scenario struct {
	Title, Description string
	Policies, Sweep    string
	script             string
}

// shippedScenarios returns the names of the scenarios in the program.
func shippedScenarios() (names []string) {
	files, _ := fs.ReadDir(shipped, "scenarios") // it is embedded
	for _, f := range files {
		names = append(names, strings.TrimSuffix(f.Name(), ".txt"))
	}
	return names
}

// readScenario reads a shipped scenario by its name, or a file. section is the name of the script in a file with several scripts, which begin with
// "-- NAME --"; empty: the first.
func readScenario(name, section string) (*scenario, error) {
	text, err := readText(name)
	if err != nil {
		return nil, err
	}
	head, script := "", text
	if sections := scriptlines.Sections(text); sections[0].HasTitles {
		var names []string
		script = ""
		for _, s := range sections[1:] {
			if names = append(names, s.Title); script == "" && (section == "" || section == s.Title) {
				head, script = "# "+s.Title+"\n", s.Text
			}
		}
		if script == "" {
			return nil, fmt.Errorf("scenario %s: no section %q; it has %q", name, section, names)
		}
	} else if section != "" {
		return nil, fmt.Errorf("scenario %s: no section %q; it is a single script", name, section)
	}
	s := &scenario{script: script}
	s.parseHead(head + script)
	if s.Title == "" {
		s.Title = strings.TrimSuffix(path.Base(name), path.Ext(name))
	}
	return s, nil
}

// readText returns the text of a scenario.
func readText(name string) (string, error) {
	if text, err := shipped.ReadFile("scenarios/" + name + ".txt"); err == nil {
		return string(text), nil
	}
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("scenario %s: no such file, and none of the shipped ones: %s", name, strings.Join(shippedScenarios(), ", "))
	}
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFileSize+1))
	if err != nil {
		return "", err
	}
	if len(text) > maxFileSize {
		return "", fmt.Errorf("scenario %s: more than %d bytes", name, maxFileSize)
	}
	return string(text), nil
}

// parseHead reads the comments before the first command.
func (s *scenario) parseHead(text string) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		comment, ok := strings.CutPrefix(line, "#")
		if !ok && line != "" {
			return
		}
		comment = strings.TrimSpace(comment)
		policies, hasPolicies := strings.CutPrefix(comment, "policies:")
		sweep, hasSweep := strings.CutPrefix(comment, "sweep:")
		switch {
		case hasPolicies:
			s.Policies = strings.TrimSpace(policies)
		case hasSweep:
			s.Sweep = strings.TrimSpace(sweep)
		case s.Title == "":
			s.Title = comment
		default:
			s.Description = strings.TrimSpace(s.Description + " " + comment)
		}
	}
}

// variable matches a variable of a sweep in a script.
var variable = regexp.MustCompile(`\$[a-z]+`)

// expand returns the script with values in place of its variables, and its duration. A variable without a value is an error, and so is a script above
// the bounds: the error names the line.
func (s *scenario) expand(values map[string]string) (script string, total time.Duration, err error) {
	var unknown string
	script = variable.ReplaceAllStringFunc(s.script, func(name string) string {
		value, ok := values[name[1:]]
		if !ok {
			unknown = name
		}
		return value
	})
	if unknown != "" {
		return "", 0, fmt.Errorf("scenario %s: no value for %s; only a sweep has one", s.Title, unknown)
	}
	total, err = checkBounds(script)
	if err != nil {
		return "", 0, fmt.Errorf("scenario %s: %w", s.Title, err)
	}
	return script, total, nil
}

// podRange matches a range of numbers in the name of a pod.
var podRange = regexp.MustCompile(`\{(\d+)\.\.(\d+)\}`)

// checkBounds returns the duration of a script. A script with too many pods, or that takes too long, is an error that names the line.
func checkBounds(script string) (total time.Duration, err error) {
	pods, number := 0, 0
	for line := range strings.Lines(script) {
		number++
		words := strings.Fields(line)
		if len(words) < 2 {
			continue
		}
		switch words[0] {
		case "pod":
			pods++
			if r := podRange.FindStringSubmatch(words[1]); r != nil {
				from, _ := strconv.Atoi(r[1]) // the command itself reports numbers that are too large
				to, _ := strconv.Atoi(r[2])
				pods += min(max(to-from, 0), maxPods)
			}
		case "after", "restart", "reboot":
			d, _ := time.ParseDuration(words[len(words)-1]) // the command itself reports an error
			total = min(total+max(min(d, maxDuration+1), 0), maxDuration+1)
		}
		if pods > maxPods {
			return 0, fmt.Errorf("line %d: more than %d pods", number, maxPods)
		}
		if total > maxDuration {
			return 0, fmt.Errorf("line %d: more than %v in total", number, maxDuration)
		}
	}
	return total, nil
}
