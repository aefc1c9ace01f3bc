// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"

	"github.com/seed81659283/nodeagent/internal/safeyaml"
)

const (
	maxSize      = 10 << 20 // the most that is read of a manifest, as in the kubelet
	maxErrors    = 100      // the most that are reported of a manifest
	maxText      = 2_000    // bytes of an error, which may quote what is in the manifest
	maxDocuments = 10_000   // of a manifest
	documentCost = 15       // values of the budget, which a document costs even when it is empty
	podCost      = 40       // values of the budget, which a pod costs even when it is small
	maxTries     = 20_000   // of decoding a part of a pod to find the one that does not fit
)

// Parse returns the pods of a manifest as they are to run, and what is wrong with it. Both can be there at once: a
// pod is returned if it has no error itself. A manifest with an empty list holds no pods, one without any object is
// an error.
func Parse(data []byte, o Origin) ([]*corev1.Pod, []*Error) {
	entries, errs, _ := parse(data, o)
	var pods []*corev1.Pod
	for _, e := range entries {
		pods = append(pods, e.pod)
	}
	return pods, errs
}

// entry is a pod with what is kept about it.
type entry struct {
	pod  *corev1.Pod
	sum  string // of the pod as written
	line int    // of its name
	won  bool   // it is in the last update, rather than a duplicate of one that is
}

func (e entry) key() string { return e.pod.Namespace + "/" + e.pod.Name }

// parse also returns what the manifest costs to keep.
func parse(data []byte, o Origin) ([]entry, []*Error, cost) {
	p := parser{origin: o, budget: safeyaml.NewBudget(len(data)), tries: maxTries}
	p.at.root = &yaml.Node{}
	p.all(data)
	return p.entries, p.errs, cost{values: p.budget.Spent(), bytes: len(data)}
}

// parser collects what the documents of one manifest hold.
type parser struct {
	origin  Origin
	budget  *safeyaml.Budget // what is left for the documents that follow
	tries   int              // left to find what cannot be decoded
	at      positions        // in the current document
	entries []entry
	errs    []*Error
}

func (p *parser) all(data []byte) {
	switch docs := split(data); {
	case len(data) > maxSize:
		p.report(1, "", fmt.Errorf("%d bytes exceed the limit of %d", len(data), maxSize))
	case len(docs) == 0:
		p.report(1, "", errors.New("no object, only blanks and comments"))
	case len(docs) > maxDocuments:
		p.report(1, "", fmt.Errorf("more than %d documents", maxDocuments))
	default:
		for _, d := range docs {
			if err := p.budget.Spend(documentCost); err != nil {
				p.report(d.before+1, "", errors.Unwrap(err))
				return
			}
			p.document(d)
		}
	}
}

// full reports whether no more errors are shown. To find where they are would then be in vain.
func (p *parser) full() bool { return len(p.errs) > maxErrors }

func (p *parser) fail(path string, err error) {
	if !p.full() {
		p.report(p.at.line(path), path, err)
	}
}

func (p *parser) report(line int, path string, err error) {
	if len(p.errs) >= maxErrors {
		path, err = "", errors.New("there are more errors than are shown")
	}
	if text := err.Error(); len(text) > maxText {
		err = errors.New(strings.ToValidUTF8(text[:maxText], "") + "...")
	}
	if len(path) > maxText {
		path = strings.ToValidUTF8(path[:maxText], "") + "..."
	}
	if !p.full() {
		p.errs = append(p.errs, &Error{File: p.origin.Location, Line: line, Field: path, Err: err})
	}
}

// list is a PodList or List whose items are still to be decoded.
type list struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []json.RawMessage `json:"items"`
}

func (p *parser) document(d document) {
	raw, ok := p.convert(d)
	if !ok {
		return
	}
	kind, ok := p.kind(raw, "", "")
	switch {
	case !ok:
	case kind == "Pod":
		p.pod(raw, "")
	case kind == "PodList":
		p.list(raw, "Pod")
	case kind == "List":
		p.list(raw, "")
	default:
		p.fail("kind", fmt.Errorf("want Pod, PodList or List, got %q", kind))
	}
}

// list takes the pods of a list in. Its items are of the implied kind if they have none of their own.
func (p *parser) list(raw []byte, implied string) {
	l := list{}
	if !p.decode(raw, "", &l) {
		return
	}
	for i, item := range l.Items {
		path := fmt.Sprintf("items[%d]", i)
		kind, ok := p.kind(item, path, implied)
		switch {
		case !ok:
		case kind == "Pod":
			p.pod(item, path)
		default:
			p.fail(join(path, "kind"), fmt.Errorf("want Pod, got %q", kind))
		}
	}
}

// kind returns the kind of an object of the core API.
func (p *parser) kind(raw []byte, path, implied string) (string, bool) {
	if b := bytes.TrimSpace(raw); len(b) == 0 || b[0] != '{' {
		p.fail(path, errors.New("want an object"))
		return "", false
	}
	var t struct {
		APIVersion any `json:"apiVersion"`
		Kind       any `json:"kind"`
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &t); err != nil {
		p.fail(path, err)
		return "", false
	}
	if implied != "" && t.APIVersion == nil && t.Kind == nil {
		return implied, true
	}
	kind, ok := t.Kind.(string)
	switch {
	case t.APIVersion == nil:
		p.fail(join(path, "apiVersion"), errors.New("required"))
	case t.APIVersion != "v1":
		p.fail(join(path, "apiVersion"), fmt.Errorf("want \"v1\", got %q", fmt.Sprint(t.APIVersion)))
	case !ok || kind == "":
		p.fail(join(path, "kind"), errors.New("required"))
	default:
		return kind, true
	}
	return "", false
}

// decode reads an object strictly and reports what does not fit.
func (p *parser) decode(raw []byte, path string, into any) bool {
	strict, err := kjson.UnmarshalStrict(raw, into)
	if err != nil {
		where, cause := p.culprit(raw, reflect.TypeOf(into).Elem())
		p.fail(join(path, where), cause)
		return false
	}
	for _, err := range strict {
		name, what := "", err.Error()
		if f, ok := errors.AsType[kjson.FieldError](err); ok {
			name = f.FieldPath()
			what = strings.TrimSuffix(what, fmt.Sprintf(" %q", name))
		}
		p.fail(join(path, name), errors.New(what))
	}
	return len(strict) == 0
}

// failAt reports an error about a part of an object.
func (p *parser) failAt(path string, err error) {
	if e, ok := errors.AsType[*safeyaml.Error](err); ok {
		path, err = join(path, e.Path), e.Err
	}
	p.fail(path, err)
}

// pod takes a pod in, if it can run here.
func (p *parser) pod(raw []byte, path string) {
	err := p.budget.Spend(podCost)
	if err == nil {
		err = safeyaml.Quantities(raw, reflect.TypeFor[corev1.Pod]())
	}
	if err != nil {
		p.failAt(path, err)
		return
	}
	pod := &corev1.Pod{}
	if !p.decode(raw, path, pod) {
		return
	}
	if pod.Name == "" {
		p.fail(join(path, "metadata.name"), errors.New("required"))
		return
	}
	sum, errs := p.origin.complete(pod, raw)
	for _, e := range errs {
		p.fail(join(path, e.Field), errors.New(e.ErrorBody()))
	}
	if len(errs) > 0 {
		return
	}
	p.entries = append(p.entries, entry{pod: pod, sum: sum, line: p.at.line(join(path, "metadata.name"))})
}

// culprit finds the value in a JSON object that a type does not take, as decoding errors do not say where they are. It
// names what holds the value where there is too much to try.
func (p *parser) culprit(raw []byte, t reflect.Type) (string, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return "", err
	}
	path, err := p.descend(v, func(v any) error {
		p.tries--
		b, err := json.Marshal(v)
		if err != nil {
			return err
		}
		return kjson.UnmarshalCaseSensitivePreserveInts(b, reflect.New(t).Interface())
	})
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		err = fmt.Errorf("want %s, got %s", typeName(e.Type), e.Value)
	}
	return path, err
}

// descend follows the children that fail to decode on their own, where what holds them would not fail without them.
func (p *parser) descend(v any, decode func(any) error) (string, error) {
	switch v := v.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			within := func(x any) error { return decode(map[string]any{key: x}) }
			if p.tries > 0 && within(v[key]) != nil && within(nil) == nil {
				path, err := p.descend(v[key], within)
				if strings.ContainsAny(key, ".[]") {
					key = "[" + key + "]"
				}
				return join(key, path), err
			}
		}
	case []any:
		for i, x := range v {
			within := func(x any) error { return decode([]any{x}) }
			if p.tries > 0 && within(x) != nil && within(nil) == nil {
				path, err := p.descend(x, within)
				return join(fmt.Sprintf("[%d]", i), path), err
			}
		}
	}
	return "", decode(v)
}

// typeName says in the words of a manifest what a Go type takes.
func typeName(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Struct, reflect.Map:
		return "object"
	case reflect.Slice:
		return "list"
	case reflect.Bool:
		return "boolean"
	case reflect.Pointer:
		return typeName(t.Elem())
	}
	return t.Kind().String()
}
