// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package systemdtest

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/godbus/dbus/v5"
)

// Fault is what goes wrong with one call.
type Fault string

const (
	// Hang does nothing and never answers. Of "Auth", it does not even greet.
	Hang Fault = "hang"
	// Disconnect ends the connection and does nothing.
	Disconnect Fault = "hang up"
	// DisconnectAfterCall does what is asked and ends the connection instead of answering.
	DisconnectAfterCall Fault = "hang up after"
	// NoReply does what is asked and answers as a bus does that systemd has left.
	NoReply Fault = "no reply"
	// EarlyResult sends the result of the job before the answer to the call.
	EarlyResult Fault = "early"
	// OtherJobResult sends the result of another job of the unit first.
	OtherJobResult Fault = "stray"
	// NoResult ends the job without telling anyone.
	NoResult Fault = "no signal"
	// JobHangs begins the job and never ends it.
	JobHangs Fault = "no end"
	// Canceled ends the job with the result "canceled" and leaves the unit as it was.
	Canceled Fault = "canceled"
	// Failed ends the job with the result "failed"; the unit has failed.
	Failed Fault = "failed"
	// StopReading answers, and then reads nothing any more and does not hang up either.
	StopReading Fault = "deaf"
	// Denied answers with an error.
	Denied Fault = "denied"
)

// Inject makes the next calls of a method go wrong, one fault each. The version, which is what Get gets, is asked for
// again when no answer comes.
func (s *Systemd) Inject(method string, faults ...Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults[method] = append(s.faults[method], faults...)
}

// Pending returns how many of the faults of a method have not happened yet.
func (s *Systemd) Pending(method string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.faults[method])
}

func (s *Systemd) next(method string) (f Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if queue := s.faults[method]; len(queue) > 0 {
		f, s.faults[method] = queue[0], queue[1:]
	}
	return f
}

// answer answers a call, and reports whether the connection goes on.
func (s *Systemd) answer(p *peer, msg *dbus.Message) bool {
	method, _ := msg.Headers[dbus.FieldMember].Value().(string)
	fault := s.next(method)
	if fault == Hang || fault == Disconnect {
		return fault == Hang
	}
	if fault == StopReading {
		defer func() { <-p.gone }()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	reply := map[dbus.HeaderField]dbus.Variant{dbus.FieldReplySerial: dbus.MakeVariant(msg.Serial())}
	body, end, err := s.call(p, method, msg, fault)
	if fault == Denied {
		err = dbus.NewError("org.freedesktop.DBus.Error.AccessDenied", []any{"Permission denied"})
	}
	if fault == NoReply {
		err = dbus.NewError("org.freedesktop.DBus.Error.NoReply", []any{"Message recipient disconnected from message bus"})
	}
	switch {
	case fault == DisconnectAfterCall:
		return false
	case err != nil:
		reply[dbus.FieldErrorName] = dbus.MakeVariant(err.Name)
		p.send(dbus.TypeError, reply, err.Body...)
		return true
	case fault == EarlyResult:
		end()
		p.send(dbus.TypeMethodReply, reply, body...)
		return true
	}
	p.send(dbus.TypeMethodReply, reply, body...)
	if end != nil {
		end()
	}
	return true
}

// call does what a method does. With a job comes the func that tells of its end.
func (s *Systemd) call(p *peer, method string, msg *dbus.Message, fault Fault) (body []any, end func(), err *dbus.Error) {
	switch method {
	case "Hello":
		return []any{":1.7"}, nil, s.onBus(method)
	case "AddMatch":
		p.matches = true
		return nil, nil, s.onBus(method)
	case "Get":
		return []any{s.properties(msg)[msg.Body[1].(string)]}, nil, nil
	case "GetAll":
		return []any{s.properties(msg)}, nil, nil
	}
	if fault == Denied {
		return nil, nil, nil
	}
	name := msg.Body[0].(string)
	s.calls = append(s.calls, text(method, msg.Body))
	body, end, err = s.manage(method, name, msg.Body, fault)
	if err == nil && s.observe != nil {
		s.observe(method, name)
	}
	return body, end, err
}

// manage does what a method of the manager does to a unit.
func (s *Systemd) manage(method, name string, args []any, fault Fault) (body []any, end func(), err *dbus.Error) {
	switch method {
	case "StartTransientUnit":
		if s.units[name] != nil {
			return nil, nil, fail("UnitExists", "Unit %s was already loaded or has a fragment file.", name)
		}
		props := pairs(args[2])
		if _, ok := props["Delegate"]; ok {
			return nil, nil, fail("InvalidArgs", "Delegation not available for unit type")
		}
		for parent := range parents(name) {
			if s.units[parent] == nil {
				s.units[parent] = &Unit{State: "active", Properties: map[string]dbus.Variant{}}
			}
		}
		s.units[name] = &Unit{State: "inactive", Properties: props}
		return s.job(name, "active", fault)
	case "StartUnit":
		if s.units[name] == nil {
			s.units[name] = &Unit{Properties: map[string]dbus.Variant{}}
		}
		return s.job(name, "active", fault)
	case "StopUnit":
		if s.units[name] == nil {
			return nil, nil, fail("NoSuchUnit", "Unit %s not loaded.", name)
		}
		return s.job(name, "inactive", fault)
	case "ResetFailedUnit":
		if s.units[name] == nil {
			return nil, nil, fail("NoSuchUnit", "Unit %s not loaded.", name)
		}
		if s.units[name].State == "failed" {
			delete(s.units, name)
		}
		return nil, nil, nil
	case "SetUnitProperties":
		if s.units[name] == nil {
			s.units[name] = &Unit{State: "inactive", Properties: map[string]dbus.Variant{}}
		}
		maps.Copy(s.units[name].Properties, pairs(args[2]))
		return nil, nil, nil
	}
	return nil, nil, fail("UnknownMethod", "Unknown method %s", method)
}

// job brings a unit to a state, now, and returns the answer and what sends the result.
func (s *Systemd) job(name, state string, fault Fault) ([]any, func(), *dbus.Error) {
	s.jobs++
	id, unit := s.jobs, s.units[name]
	path := dbus.ObjectPath(fmt.Sprintf("%s/job/%d", rootPath, id))
	text := "done"
	was := unit.State
	unit.State = state
	switch {
	case fault == Canceled:
		unit.State, text = was, "canceled"
	case fault == JobHangs:
		unit.State, unit.Job = "activating", id
		return []any{path}, nil, nil
	case fault == Failed:
		unit.State, text = "failed", "failed"
	case state == "inactive":
		for other := range s.units {
			if other == name || strings.HasPrefix(other, strings.TrimSuffix(name, ".slice")+"-") {
				delete(s.units, other)
			}
		}
	}
	switch fault {
	case NoResult:
		return []any{path}, nil, nil
	case OtherJobResult:
		s.signal(id+1000, dbus.ObjectPath(fmt.Sprintf("%s/job/%d", rootPath, id+1000)), name, "canceled")
	}
	return []any{path}, func() { s.signal(id, path, name, text) }, nil
}

// signal tells all that asked. The lock is held.
func (s *Systemd) signal(id uint32, job dbus.ObjectPath, unit, text string) {
	for p := range s.conns {
		if s.isBus && !p.matches {
			continue
		}
		p.send(dbus.TypeSignal, map[dbus.HeaderField]dbus.Variant{
			dbus.FieldPath:      dbus.MakeVariant(dbus.ObjectPath(rootPath)),
			dbus.FieldInterface: dbus.MakeVariant(manager),
			dbus.FieldMember:    dbus.MakeVariant("JobRemoved"),
		}, id, job, unit, text)
	}
}

// properties returns the properties of the object that the call goes to.
func (s *Systemd) properties(msg *dbus.Message) map[string]dbus.Variant {
	path, _ := msg.Headers[dbus.FieldPath].Value().(dbus.ObjectPath)
	if path == rootPath {
		return map[string]dbus.Variant{"Version": dbus.MakeVariant(s.version)}
	}
	all := map[string]dbus.Variant{"ActiveState": dbus.MakeVariant("inactive"), "Job": job(0)}
	for name, u := range s.units {
		if strings.HasSuffix(string(path), "/"+escape(name)) {
			maps.Copy(all, u.Properties)
			all["ActiveState"], all["Job"] = dbus.MakeVariant(u.State), job(u.Job)
		}
	}
	return all
}

func job(id uint32) dbus.Variant {
	return dbus.MakeVariant(struct {
		ID   uint32
		Path dbus.ObjectPath
	}{id, "/"})
}

// escape is the naive form of what systemd does to names of units.
func escape(name string) string {
	return strings.NewReplacer("-", "_2d", ".", "_2e", "_", "_5f").Replace(name)
}

// onBus refuses what only a message bus understands.
func (s *Systemd) onBus(method string) *dbus.Error {
	if s.isBus {
		return nil
	}
	return dbus.NewError("org.freedesktop.DBus.Error.UnknownObject", []any{"Unknown object for " + method})
}

func fail(name, format string, args ...any) *dbus.Error {
	return dbus.NewError(busName+"."+name, []any{fmt.Sprintf(format, args...)})
}

// parents yields the slices that a slice is in by its name.
func parents(name string) func(func(string) bool) {
	return func(yield func(string) bool) {
		for i, c := range name {
			if c == '-' && !yield(name[:i]+".slice") {
				return
			}
		}
	}
}

// pairs reads an array of names and values.
func pairs(v any) map[string]dbus.Variant {
	props := map[string]dbus.Variant{}
	for _, pair := range v.([][]any) {
		props[pair[0].(string)] = pair[1].(dbus.Variant)
	}
	return props
}

// text is a call as a line: the method and what it was given, properties sorted.
func text(method string, args []any) string {
	words := []string{method}
	for _, arg := range args {
		list, ok := arg.([][]any)
		if !ok {
			words = append(words, fmt.Sprint(arg))
			continue
		}
		var props []string
		for _, pair := range list {
			props = append(props, fmt.Sprintf("%s=%v", pair[0], pair[1].(dbus.Variant).Value()))
		}
		words = append(words, slices.Sorted(slices.Values(props))...)
	}
	return strings.Join(words, " ")
}
