package process

import (
	"os"
	"reflect"
	"strconv"

	"github.com/kelseyhightower/envconfig"
)

// addressable returns cfg itself if it is a pointer, else a pointer to a copy.
func addressable(cfg any) any {
	v := reflect.ValueOf(cfg)
	if v.Kind() == reflect.Pointer {
		return cfg
	}
	p := reflect.New(v.Type())
	p.Elem().Set(v)
	return p.Interface()
}

// normalDefault is the default as text() would show it: "10m" is "10m0s".
func (s setting) normalDefault() string {
	def := s
	def.value = reflect.New(s.field.Type).Elem()
	if s.fallback == "" {
		return def.text()
	}
	// A name that no environment has, so that envconfig takes the default.
	f := s.field
	f.Tag = reflect.StructTag(`envconfig:"MILLWEIR_NO_SUCH_VARIABLE" default:` + strconv.Quote(s.fallback))
	if _, set := os.LookupEnv("MILLWEIR_NO_SUCH_VARIABLE"); set {
		return s.fallback
	}
	one := reflect.New(reflect.StructOf([]reflect.StructField{f}))
	if err := envconfig.Process("", one.Interface()); err != nil {
		return s.fallback
	}
	def.value = one.Elem().Field(0)
	return def.text()
}
