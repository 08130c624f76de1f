package web

import (
	"reflect"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/millweir/millweir/pkg/auth"
	"github.com/millweir/millweir/pkg/tasks/filter"
	"github.com/millweir/millweir/pkg/wire"
)

// hiddenText stands in an explanation for an error's text that the caller may not see.
const hiddenText = "(not shown)"

// Veiled reports whether the caller sees states and no payload: the scope status without read.
func Veiled(c *gin.Context) bool {
	who := RequestOf(c).Principal
	return who.May(auth.ScopeStatus) && !who.May(auth.ScopeRead)
}

// Veil is v as the caller may see it: the same, or a copy without the fields that have the tag payload. All that is sent as JSON or as
// an event goes through it.
func Veil(c *gin.Context, v any) any {
	if v == nil || !Veiled(c) {
		return v
	}
	shown := reflect.New(reflect.TypeOf(v)).Elem()
	shown.Set(reflect.ValueOf(v))
	veil(shown)
	return shown.Interface()
}

// veil empties what is payload below v. What it does not know is payload.
func veil(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			inner := reflect.New(v.Type().Elem())
			inner.Elem().Set(v.Elem())
			veil(inner.Elem())
			v.Set(inner)
		}
	case reflect.Struct:
		veilStruct(v)
	case reflect.Slice:
		switch of := v.Type().Elem(); {
		case of.Kind() == reflect.Uint8: // JSON of somebody's
			v.SetZero()
		case !v.IsNil() && !scalar(of):
			items := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
			reflect.Copy(items, v)
			for i := range items.Len() {
				veil(items.Index(i))
			}
			v.Set(items)
		}
	case reflect.Map, reflect.Interface:
		if v.Kind() == reflect.Interface || !scalar(v.Type().Elem()) {
			v.SetZero()
		}
	default:
	}
}

// veilStruct empties the fields that are payload, and looks into the others.
func veilStruct(v reflect.Value) {
	if v.Type().PkgPath() == "time" || v.Type() == reflect.TypeFor[wire.Time]() || v.Type() == reflect.TypeFor[wire.NullTime]() {
		return
	}
	e, explains := v.Addr().Interface().(*wire.Explanation)
	if explains && e.Task.LastError != "" { // which stands in the words as it is
		said := strings.TrimSuffix(string(e.Task.LastError), ".")
		e.Text = strings.ReplaceAll(e.Text, said, hiddenText)
		for _, s := range e.Sentences {
			for i, arg := range s.Args {
				s.Args[i] = strings.ReplaceAll(arg, said, hiddenText)
			}
		}
	}
	for i := range v.NumField() {
		f, about := v.Field(i), v.Type().Field(i)
		switch {
		case !about.IsExported():
		case about.Tag.Get("payload") == "":
			veil(f)
		case f.Kind() == reflect.Map:
			f.Set(reflect.MakeMap(f.Type()))
		case f.Kind() == reflect.Slice:
			f.Set(reflect.MakeSlice(f.Type(), 0, 0))
		default:
			f.SetZero()
		}
	}
	switch s := v.Addr().Interface().(type) { // the code's own words instead of those of the failure
	case *wire.Task:
		s.ErrorMessage = wire.NullText(Kinds[string(s.ErrorCode)].Remedy)
	case *wire.FailureGroup:
		s.Remedy = wire.NullText(Kinds[string(s.ErrorCode)].Remedy)
	}
}

// scalar reports whether a value of the type holds nothing below it.
func scalar(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Struct, reflect.Map, reflect.Slice, reflect.Array, reflect.Pointer, reflect.Interface:
		return false
	default:
		return true
	}
}

// CheckVeil refuses parameters by which a caller who sees no payload would ask what stands in it.
func CheckVeil(c *gin.Context, now time.Time) error {
	if !Veiled(c) {
		return nil
	}
	for _, name := range []string{"q", "metadata"} {
		if _, given := c.GetQuery(name); given {
			return unveil("parameter " + name + " looks into names and texts").About(name)
		}
	}
	f, err := filter.Parse(c.Query("filter"), now)
	if err == nil && (f.Query.Text != "" || f.Query.Error != "" || f.Query.FileName != "") {
		return unveil("the conditions error~ and doc~, and words, look into names and texts").About("filter")
	}
	return nil // one that cannot be read is the route's to refuse
}

// unveil is the refusal of what needs the payload.
func unveil(what string) *Error {
	return Errorf(CodeScope, "%s, and a key or token with the scope status alone sees none", what)
}
