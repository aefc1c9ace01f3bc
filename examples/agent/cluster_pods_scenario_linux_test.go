// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/tools/txtar"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/seed81659283/nodeagent/internal/controlplane"
	"github.com/seed81659283/nodeagent/internal/exetest"
)

// scenario is an archive of testdata/pods. It has steps, manifests, and the differences between the agent and the kubelet.
// $NODE in its files is the node. A pod named NAME-$NODE, or a static pod named NAME, is NAME in steps and lines.
type scenario struct {
	name  string
	steps []string
	files map[string]string
	alone bool // it needs the capacity of both nodes
}

// readScenario reads an archive. Each of its steps is a line of the file "steps".
func readScenario(t *testing.T, path string) scenario {
	t.Helper()
	archive, err := txtar.ParseFile(path)
	require.NoError(t, err)
	s := scenario{name: strings.TrimSuffix(filepath.Base(path), ".txtar"), files: map[string]string{}}
	for _, f := range archive.Files {
		s.files[f.Name] = string(f.Data)
	}
	for line := range strings.Lines(s.files["steps"]) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			s.steps = append(s.steps, line)
		}
	}
	if s.alone = len(s.steps) > 0 && s.steps[0] == "alone"; s.alone {
		s.steps = s.steps[1:]
	}
	require.NotEmpty(t, s.steps, path)
	return s
}

// side is one of the two nodes as a scenario uses it.
type side struct {
	*member
	name      string      // of the node
	manifests exetest.Dir // of static pods
	pods      *podRecorder
}

// actor executes the steps of a scenario on one node.
type actor struct {
	side
	s       scenario
	notes   map[string]string // lines that steps add
	aliases map[string]bool   // of the pods that steps name
}

// play executes the steps. It stops at a failed step, and adds a line for it.
func (a *actor) play() {
	for i, step := range a.s.steps {
		if err := a.execute(strings.Fields(step), step); err != nil {
			line := normalize(fmt.Sprintf("%s%d, %s: %v", stepLine, i+1, step, err))
			a.notes[line] = line
			return
		}
	}
}

// execute executes a step.
func (a *actor) execute(words []string, step string) error {
	rest := func(n int) string { return a.expand(strings.Join(strings.Fields(step)[n:], " ")) }
	switch words[0] {
	case "apply": // FILE: creates the objects of a file
		return a.create(a.s.files[words[1]])
	case "put": // FILE NAME: writes a file as the manifest of static pod NAME
		a.aliases[words[2]] = true
		return a.writeManifest(words[2], a.s.files[words[1]])
	case "remove": // NAME: removes the manifest of a static pod
		return os.Remove(filepath.Join(a.manifests.Path, a.manifestName(words[1])))
	case "take": // NAME: moves the manifest of a static pod out of the directory
		return os.Rename(filepath.Join(a.manifests.Path, a.manifestName(words[1])), a.outside("away", words[1]))
	case "return": // NAME: moves the manifest back
		return os.Rename(a.outside("away", words[1]), filepath.Join(a.manifests.Path, a.manifestName(words[1])))
	case "patch": // POD JSON: a strategic merge patch
		_, err := a.try("", "patch", "pod", "-n", a.s.name, a.podName(words[1]), "-p", rest(2))
		return err
	case "resize": // POD JSON: a strategic merge patch of subresource resize
		_, err := a.try("", "patch", "pod", "-n", a.s.name, a.podName(words[1]), "--subresource=resize", "-p", rest(2))
		return err
	case "delete": // POD GRACE: deletes a pod with a grace period in seconds
		return a.Admin().Do(within(a.t, timeout), http.MethodDelete, a.path("pods", a.podName(words[1])), fmt.Appendf(nil,
			`{"kind":"DeleteOptions","apiVersion":"v1","gracePeriodSeconds":%s}`, words[2]), nil)
	case "namespace": // creates the namespace, if the scenario has the file "namespace"
		err := createNamespace(a.member, a.s.name)
		if controlplane.StatusCode(err) == http.StatusConflict { // the other node was faster
			err = nil
		}
		return err
	case "pause": // DURATION
		d, err := time.ParseDuration(words[1])
		time.Sleep(d)
		return err
	case "links": // POD: notes the links to the logs of a pod
		return a.noteLinks(words[1])
	case "await": // [DURATION] POD CONDITION...: waits until the newest version meets all conditions
		limit, err := time.ParseDuration(words[1])
		if err != nil {
			return a.awaitConditions(stepTimeout, words[1], words[2:])
		}
		return a.awaitConditions(limit, words[2], words[3:])
	}
	return fmt.Errorf("unknown step %q", words[0])
}

// writeManifest writes the manifest of a static pod with one rename, so that no node reads a part of it.
func (a *actor) writeManifest(name, text string) error {
	if err := os.WriteFile(a.outside("new", name), []byte(a.expand(text)), 0o600); err != nil {
		return err
	}
	return os.Rename(a.outside("new", name), filepath.Join(a.manifests.Path, a.manifestName(name)))
}

// outside returns a path next to the manifest directory for the manifest of a static pod. purpose and the node are in its
// name, because the directories of both nodes may have one parent.
func (a *actor) outside(purpose, name string) string {
	return filepath.Join(filepath.Dir(a.manifests.Path), purpose+"-"+a.name+"-"+a.manifestName(name))
}

// expand replaces the variables of a text.
func (a *actor) expand(text string) string {
	port := map[string]string{"n1": "24601", "n2": "24602"}[a.name]
	return strings.NewReplacer("$NODE", a.name, "$PORT", port).Replace(text)
}

// manifestName is the file name of the manifest of a static pod.
func (a *actor) manifestName(name string) string { return a.s.name + "-" + name + ".yaml" }

func (a *actor) podName(alias string) string { return alias + "-" + a.name }

func (a *actor) path(resource, name string) string {
	return strings.TrimSuffix("/api/v1/namespaces/"+a.s.name+"/"+resource+"/"+name, "/")
}

// create creates the objects of a file in the namespace of the scenario.
func (a *actor) create(text string) error {
	for document := range strings.SplitSeq(a.expand(text), "\n---\n") {
		var object struct {
			Kind     string
			Metadata struct{ Name string }
		}
		if err := yaml.Unmarshal([]byte(document), &object); err != nil {
			return err
		}
		if object.Kind == "Pod" {
			a.aliases[strings.TrimSuffix(object.Metadata.Name, "-"+a.name)] = true
		}
		body, err := yaml.YAMLToJSON([]byte(document))
		if err != nil {
			return err
		}
		if err := a.Admin().Do(within(a.t, timeout), http.MethodPost, a.path(strings.ToLower(object.Kind)+"s", ""), body, nil); err != nil {
			return err
		}
	}
	return nil
}

// stepTimeout is the timeout of a step without a duration. Steps take a few seconds on an idle machine.
const stepTimeout = 45 * time.Second

// awaitConditions waits until a pod meets all conditions.
func (a *actor) awaitConditions(limit time.Duration, alias string, conditions []string) error {
	var unmet error
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		h := a.pods.snapshot(podKey{a.s.name, a.podName(alias)})
		unmet = nil
		for _, c := range conditions {
			unmet = cmp.Or(unmet, checkCondition(h, c))
		}
		if unmet == nil {
			return nil
		}
	}
	return unmet
}

// checkCondition returns an error if a history does not meet a condition. Conditions are "gone", "event=REASON",
// "phase=PHASE", "mirrors=N" (number of objects so far), "observed=GENERATION" and "condition=TYPE:STATUS:REASON".
// Conditions of a container are "NAME=running", "NAME=waiting:REASON", "NAME=terminated:REASON" and "NAME.restarts=N".
func checkCondition(h podHistory, condition string) error {
	subject, want, _ := strings.Cut(condition, "=")
	pod, ok := h.last()
	var got []string
	switch subject {
	case "gone":
		if ok || len(h.versions) == 0 {
			return errors.New("the pod is not deleted")
		}
		return nil
	case "event":
		for _, e := range h.events {
			got = append(got, e.Reason)
		}
	case "phase":
		got = []string{string(pod.Status.Phase)}
	case "observed":
		got = []string{fmt.Sprint(pod.Status.ObservedGeneration)}
	case "mirrors":
		uids := letters{}
		for _, v := range h.versions {
			uids.letter(string(v.pod.UID))
		}
		got = []string{fmt.Sprint(len(uids))}
	case "condition":
		for _, c := range pod.Status.Conditions {
			got = append(got, strings.TrimSuffix(fmt.Sprint(c.Type, ":", c.Status, ":", c.Reason), ":"))
		}
	default:
		got = containerFacts(&pod, subject)
	}
	if !ok || !slices.Contains(got, want) {
		return fmt.Errorf("condition %s is not met, got %q", condition, got)
	}
	return nil
}

// containerFacts returns the current value of a condition on a container.
func containerFacts(pod *corev1.Pod, subject string) []string {
	name, field, _ := strings.Cut(subject, ".")
	for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		switch {
		case c.Name != name:
		case field == "restarts":
			return []string{fmt.Sprint(c.RestartCount)}
		case c.State.Running != nil:
			return []string{"running"}
		case c.State.Waiting != nil:
			return []string{"waiting:" + c.State.Waiting.Reason}
		case c.State.Terminated != nil:
			return []string{"terminated:" + c.State.Terminated.Reason}
		}
	}
	return nil
}

// containerLinks is the directory of links to the logs of all containers of a node.
const containerLinks = "/var/log/containers"

// noteLinks adds a line for each link to a log of a pod.
func (a *actor) noteLinks(alias string) error {
	links, err := filepath.Glob(filepath.Join(containerLinks, a.podName(alias)+"_"+a.s.name+"_*"))
	if err == nil && len(links) == 0 {
		links = []string{"none"}
	}
	for _, link := range links {
		target, errLink := os.Readlink(link)
		if errLink != nil && !errors.Is(errLink, fs.ErrNotExist) {
			err = errLink
		}
		if target != "" { // the last three elements of the path, without the directory of logs
			target = " to " + strings.Join(strings.Split(target, "/")[len(strings.Split(target, "/"))-3:], "/")
		}
		line := normalize(alias + ": link " + filepath.Base(link) + target)
		a.notes[line] = line
	}
	return err
}

// lines returns the lines of all pods of the steps, and the lines of the steps.
func (a *actor) lines() map[string]string {
	lines := maps.Clone(a.notes)
	for alias := range a.aliases {
		maps.Copy(lines, transcribe(alias, a.pods.snapshot(podKey{a.s.name, a.podName(alias)})))
	}
	return lines
}

// A condition is checked on the newest version of a pod. A deleted pod meets only "gone".
func TestScenarioConditions(t *testing.T) {
	var pod corev1.Pod
	require.NoError(t, json.Unmarshal([]byte(`{"metadata":{"uid":"u"},"status":{"phase":"Running","observedGeneration":2,
		"conditions":[{"type":"Ready","status":"False","reason":"R"}],
		"containerStatuses":[{"name":"a","restartCount":1,"state":{"waiting":{"reason":"W"}}},{"name":"b","state":{"running":{}}},
		{"name":"c","state":{"terminated":{"reason":"T"}}}]}}`), &pod))
	h := podHistory{versions: []podVersion{{pod: pod}}, events: []corev1.Event{{Reason: "E"}}}
	for _, c := range []string{"phase=Running", "observed=2", "condition=Ready:False:R", "a=waiting:W", "a.restarts=1", "b=running", "c=terminated:T", "event=E", "mirrors=1"} {
		require.NoError(t, checkCondition(h, c))
		require.Error(t, checkCondition(h, c+"x"))
		require.Error(t, checkCondition(podHistory{versions: []podVersion{{pod: pod, deleted: true}}}, c+"x"))
	}
	require.Error(t, checkCondition(h, "gone"))
	require.NoError(t, checkCondition(podHistory{versions: []podVersion{{pod: pod, deleted: true}}}, "gone"))
}
