// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodetest

import (
	"cmp"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/seed81659283/nodeagent/cri/critest"
)

// AnnotationUsage is the annotation of a pod with the behavior of its containers. AnnotationUsage + "." + NAME has precedence for the container
// with this name. The value is a list of fields, separated by blanks:
//
//	cpu=0.5 memory=ramp(64Mi,2Gi,10m) exit=1@30s
//
// The fields cpu, memory, cache, tasks, layer, logs and volume/NAME are those of [Usage]. Amounts are quantities of Kubernetes, durations have
// the format of Go. A field is an amount or one of
//
//	ramp(FROM,TO,DURING)              Ramp
//	steps(AMOUNT@AGE,...)             Steps
//	diurnal(MEAN,AMPLITUDE,PERIOD)    Diurnal
//	bursts(BASE,BURST,EVERY,LENGTH)   Bursts
//
// trace=NAME/KEY is the usage of the container KEY in the trace NAME of Options.Traces; fields after it replace single amounts.
//
// exit=CODE@AGE makes the container exit at this age. stop=DURATION is the time between the stop signal and the exit.
const AnnotationUsage = "nodetest/usage"

// maxUsageText bounds the text of an annotation.
const maxUsageText = 16 << 10

// parseAnnotations returns the behavior that the annotations of the pod define for the named container. The annotation for
// this container takes precedence over the annotation for all containers.
func (o *Options) parseAnnotations(pod *corev1.Pod, container string) (Behavior, error) {
	key := AnnotationUsage + "." + container
	text, ok := pod.Annotations[key]
	if !ok {
		key = AnnotationUsage
		text = pod.Annotations[key]
	}
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(string(pod.UID) + "/" + container))
	b, err := parseFields(text, o.Seed^hash.Sum64(), o.Traces)
	if err != nil {
		return b, fmt.Errorf("pod %s/%s: annotation %s: %w", pod.Namespace, pod.Name, key, err)
	}
	return b, nil
}

// ParseBehavior parses text, the value of an [AnnotationUsage] annotation without the field trace. seed determines the start
// times of the load peaks in the function bursts. An error quotes the invalid field.
func ParseBehavior(text string, seed uint64) (Behavior, error) { return parseFields(text, seed, nil) }

// parseFields parses text, the value of an [AnnotationUsage] annotation. traces are the traces that the field trace can name.
// seed determines the start times of the load peaks in the function bursts.
func parseFields(text string, seed uint64, traces map[string]*Trace) (b Behavior, err error) {
	if len(text) > maxUsageText {
		return b, fmt.Errorf("%d bytes, more than %d", len(text), maxUsageText)
	}
	for field := range strings.FieldsSeq(text) {
		name, value, ok := strings.Cut(field, "=")
		switch {
		case !ok:
			return Behavior{}, fmt.Errorf("field %q has no value", field)
		case name == "trace":
			b.Usage, err = tracedUsage(value, traces)
		default:
			err = b.setField(name, value, seed)
		}
		if err != nil {
			return Behavior{}, fmt.Errorf("field %q: %w", field, err)
		}
	}
	return b, nil
}

// tracedUsage returns the usage of a container that was recorded in a trace. value is TRACE/KEY: the name of the trace and
// the key of the container in the trace.
func tracedUsage(value string, traces map[string]*Trace) (Usage, error) {
	name, key, _ := strings.Cut(value, "/")
	trace := traces[name]
	if trace == nil {
		return Usage{}, fmt.Errorf("no trace %q in Options.Traces", name)
	}
	u, ok := trace.Usage(key)
	if !ok {
		return Usage{}, fmt.Errorf("trace %q has no container %q", name, key)
	}
	return u, nil
}

// setField parses one field of an [AnnotationUsage] annotation, such as name "memory" with value "64Mi", and stores it in b.
// seed determines the start times of the load peaks in the function bursts.
func (b *Behavior) setField(name, value string, seed uint64) (err error) {
	switch name {
	case "exit":
		code, age, ok := strings.Cut(value, "@")
		number, err := strconv.ParseUint(code, 10, 8)
		if err != nil || !ok {
			return errors.New("not CODE@AGE")
		}
		after, err := parseDuration(age)
		b.Exit = &critest.Exit{After: after, Code: int32(number)}
		return err
	case "stop":
		after, err := parseDuration(value)
		b.Stop = &critest.Exit{After: after}
		return err
	}
	curve, err := parseCurve(value, seed)
	if err != nil {
		return err
	}
	if volume, ok := strings.CutPrefix(name, "volume/"); ok {
		if b.Usage.Volumes == nil {
			b.Usage.Volumes = map[string]Curve{}
		}
		b.Usage.Volumes[volume] = curve
		return nil
	}
	to := map[string]*Curve{
		"cpu": &b.Usage.CPU, "memory": &b.Usage.Memory, "cache": &b.Usage.Cache, "tasks": &b.Usage.Tasks, "layer": &b.Usage.Layer, "logs": &b.Usage.Logs,
	}[name]
	if to == nil {
		return errors.New("no such field")
	}
	*to = curve
	return nil
}

// parseCurve parses the value of a usage field: a constant amount such as 64Mi, or a function call such as ramp(64Mi,2Gi,10m).
// seed determines the start times of the load peaks in the function bursts.
func parseCurve(text string, seed uint64) (Curve, error) {
	name, rest, isFunction := strings.Cut(text, "(")
	if !isFunction {
		amount, err := parseAmount(text)
		return Constant(amount), err
	}
	list, ok := strings.CutSuffix(rest, ")")
	if !ok {
		return nil, errors.New("no closing parenthesis")
	}
	p := arguments{rest: strings.Split(list, ",")}
	var c Curve
	switch name {
	case "ramp":
		c = Ramp(p.takeAmount(), p.takeAmount(), p.takeDuration())
	case "steps":
		c = Steps(p.takeSteps()...)
	case "diurnal":
		c = Diurnal(p.takeAmount(), p.takeAmount(), p.takeDuration())
	case "bursts":
		c = Bursts(BurstOptions{Base: p.takeAmount(), Burst: p.takeAmount(), Every: p.takeDuration(), Length: p.takeDuration(), Seed: seed})
	default:
		return nil, fmt.Errorf("no function %q", name)
	}
	if p.err == nil && len(p.rest) > 0 {
		p.err = fmt.Errorf("%d arguments too many", len(p.rest))
	}
	return c, p.err
}

// arguments are the arguments of a function call. Each method removes and returns the next argument, and keeps the first error in err.
type arguments struct {
	rest []string
	err  error // the first
}

// takeText returns the next argument.
func (p *arguments) takeText() string {
	if len(p.rest) == 0 {
		p.err = cmp.Or(p.err, errors.New("an argument is missing"))
		return ""
	}
	text := p.rest[0]
	p.rest = p.rest[1:]
	return text
}

// takeAmount returns the next argument as an amount.
func (p *arguments) takeAmount() float64 {
	v, err := parseAmount(p.takeText())
	p.err = cmp.Or(p.err, err)
	return v
}

// takeDuration returns the next argument as a duration.
func (p *arguments) takeDuration() time.Duration {
	d, err := parseDuration(p.takeText())
	p.err = cmp.Or(p.err, err)
	return d
}

// takeSteps returns the remaining arguments as steps.
func (p *arguments) takeSteps() (steps []Step) {
	for len(p.rest) > 0 && p.err == nil {
		amount, age, ok := strings.Cut(p.takeText(), "@")
		v, err := parseAmount(amount)
		at, err2 := parseDuration(age)
		if p.err = errors.Join(err, err2); !ok {
			p.err = errors.New("a step is not AMOUNT@AGE")
		}
		if len(steps) > 0 && at <= steps[len(steps)-1].At {
			p.err = errors.New("steps are not in the order of their ages")
		}
		steps = append(steps, Step{At: at, Amount: v})
	}
	return steps
}

// parseAmount parses a quantity that is not negative.
func parseAmount(text string) (float64, error) {
	if len(text) > 32 {
		return 0, fmt.Errorf("%d bytes are no quantity", len(text))
	}
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return 0, fmt.Errorf("%q is no quantity", text)
	}
	v := q.AsApproximateFloat64()
	if v < 0 || math.IsInf(v, 0) || math.IsNaN(v) {
		return 0, fmt.Errorf("%q is negative or too large", text)
	}
	return v, nil
}

// parseDuration parses a duration that is not negative.
func parseDuration(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("%q is no duration", text)
	}
	return d, nil
}
