# The shape "make": one rule after another, each with short programs; with a file `finish` the next one fails.
numbers := $(shell seq 1 4000)

.PHONY: all
all: $(addprefix step-,$(numbers))
	@exit 1

define in_turn
step-$(1): $(before)
before := step-$(1)
endef
before :=
$(foreach number,$(numbers),$(eval $(call in_turn,$(number))))

step-%:
	@[ ! -e finish ] && sh -c 'exit 0' && sleep 0.02 && echo $* >>out
